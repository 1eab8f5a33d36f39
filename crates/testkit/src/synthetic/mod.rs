//! Tiny random models with recorded log-probabilities.
//!
//! Weights come from a reimplementation of NumPy's default generator ([`numpy`]). NumPy wrote the
//! same file for llama.cpp, which computed the recorded log-probabilities. The files are equal byte
//! for byte; the digest is part of the record.

mod family;
mod file;
mod layers;
mod metadata;
pub mod numpy;
mod parts;
mod quantised;
mod reference;

pub use family::Family;
pub use file::{ModelFile, TensorData, Value};
pub(crate) use quantised::random_matrix;
pub use quantised::{QUANTISED_WIDTH, quantised};
pub use reference::{Reference, reference};

/// The bytes of a family's GGUF file.
pub fn file(family: Family) -> Vec<u8> {
    family.model().to_bytes()
}

/// Writes a family's GGUF file to `path`.
///
/// # Errors
/// The file cannot be written.
pub fn write(family: Family, path: impl AsRef<std::path::Path>) -> std::io::Result<()> {
    std::fs::write(path, file(family))
}
