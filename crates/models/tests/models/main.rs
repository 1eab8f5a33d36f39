//! Synthetic models of every family: what is read, what is refused, and what they compute.

mod common;
mod families;
mod reading;
mod refusals;
mod truth;
