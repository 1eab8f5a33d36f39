//! The store against a naive model that keeps a row for each token of each sequence, and single
//! cases.

mod arena;
mod check;
mod model;
mod moves;
mod property;
mod reuse;
mod units;
mod world;
