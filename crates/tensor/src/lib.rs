//! Element types and the layout of quantised blocks.
//!
//! This crate is the bottom of the house: it knows no file, no operation and no device. [`counted`]
//! is here for the messages of all crates above. The scalar decoders in [`blocks`] are the truth
//! that every packed kernel is measured against.
#![forbid(unsafe_code)]

pub mod blocks;
mod counted;
mod dtype;

pub use counted::{Counted, counted};
pub use dtype::{DType, DTypeError};
