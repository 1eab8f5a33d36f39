//! GGUF, versions 2 and 3, little-endian: reader and writer.
//!
//! A model may be split into several files; [`File::open`] takes any of them and finds the others.
//!
//! [`File::open`] reads the header of a file, checks all of it and hands out [`Metadata`] and
//! [`Tensor`] entries that borrow from it; [`File::read`] gives the tensors' bytes. [`Writer`]
//! makes files for tests, synthetic models and quantisation.
//!
//! Layout of a file: magic, version, counts, key-value pairs, tensor descriptions, padding to
//! `general.alignment`, and the tensors' bytes. The format is described in `docs/gguf.md` of the
//! ggml project.

mod cursor;
mod error;
mod file;
mod limits;
mod metadata;
mod names;
mod parse;
mod source;
mod split;
mod tensor;
mod tensor_type;
mod value;
mod writer;

pub use error::{Cause, GgufError, Item, Text};
pub use file::{File, Part};
pub use limits::{
    DEFAULT_ALIGNMENT, MAX_ALIGNMENT, MAX_ARRAY_DEPTH, MAX_DIMS, MAX_KEY_BYTES, MAX_TENSOR_NAME_BYTES,
};
pub use metadata::Metadata;
pub use tensor::Tensor;
pub use tensor_type::TensorType;
pub use value::{Array, Value, ValueType};
pub use writer::{TensorSink, WriteValue, Writer};
