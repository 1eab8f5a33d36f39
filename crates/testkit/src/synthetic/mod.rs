//! Tiny random models, made on the spot, with recorded distributions to compare with.
//!
//! A family's weights come from a reimplementation of NumPy's default generator ([`numpy`]), so
//! that the recorded log-probabilities, which another engine computed from a file that NumPy
//! filled, belong to the very same numbers. The whole file is equal byte for byte; its digest is
//! part of the record.

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
