//! Element types and the layout of quantised blocks.
//!
//! The scalar decoders in [`blocks`] define the values of every type; packed kernels are tested
//! against them. This crate knows no file, no operation and no device.
#![forbid(unsafe_code)]

pub mod blocks;
mod dtype;

pub use dtype::{DType, DTypeError};
