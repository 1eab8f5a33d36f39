//! Pieces of graphs that families share.
//!
//! A piece takes its weights from a [`Scope`], which finds them by the names that GGUF files use.

pub mod attention;
pub mod decoder;
pub mod head;
pub mod mlp;
pub mod norm;
pub mod rope;
mod scope;

pub use scope::Scope;
