//! For tests only: an f64 interpreter of graphs, operation cases for every backend, tiny synthetic
//! models with recorded log-probabilities, resident memory as the system reports it, and the files
//! that `cargo xtask test` fetches.
#![forbid(unsafe_code)]

pub mod fetched;
pub mod interpreter;
pub mod op_cases;
pub mod residency;
pub mod synthetic;
