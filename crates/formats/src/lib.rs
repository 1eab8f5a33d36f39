//! Model file formats: bytes to typed metadata and tensor entries. Today: GGUF.
//!
//! Every number in a file is checked before it is used, and every error says where in the file it
//! was found. This crate knows no graphs and no devices.
#![forbid(unsafe_code)]

pub mod gguf;
