//! Truth for tests: a plain f64 interpreter of graphs, tiny models with recorded distributions, the system's word on memory,
//! and paths of the files that `cargo xtask test` fetches.
#![forbid(unsafe_code)]

pub mod fetched;
pub mod interpreter;
pub mod op_cases;
pub mod residency;
pub mod synthetic;
