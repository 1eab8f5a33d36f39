//! Truth for tests: a plain f64 interpreter of graphs and tiny models with recorded distributions.
#![forbid(unsafe_code)]

pub mod interpreter;
pub mod synthetic;
