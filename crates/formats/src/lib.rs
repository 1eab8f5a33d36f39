//! Model files: bytes to typed metadata and tensor entries.
//!
//! A format knows bytes and nothing of graphs or devices. Every number that a file states is
//! checked before it is used, and every refusal says where in the file it arose.
#![forbid(unsafe_code)]

pub mod gguf;
