//! Element types and the layout of quantised blocks.
//!
//! This crate is the bottom of the house: it knows no file, no operation and no device. The scalar
//! decoders in [`blocks`] are the truth that every packed kernel is measured against.
#![forbid(unsafe_code)]

pub mod blocks;
mod dtype;

pub use dtype::{DType, DTypeError};
