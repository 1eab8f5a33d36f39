//! Truth for tests: a plain f64 interpreter of graphs, tiny models with recorded distributions, the system's word on memory.
#![forbid(unsafe_code)]

pub mod interpreter;
pub mod residency;
pub mod synthetic;
