//! Building blocks that families share.
//!
//! A block finds its weights through a [`Scope`], by the names that GGUF files use.

pub mod attention;
pub mod decoder;
pub mod head;
pub mod mlp;
pub mod norm;
pub mod rope;
mod scope;

pub use scope::Scope;
