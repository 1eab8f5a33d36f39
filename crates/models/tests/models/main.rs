//! Synthetic models of every family: reading, errors, results.

mod common;
mod families;
mod reading;
mod refusals;
mod truth;
