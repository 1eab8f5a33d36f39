//! Limits of the GGUF format as the reader accepts them and the writer keeps them.

/// Bytes of the longest key (GGUF specification).
pub const MAX_KEY_BYTES: u64 = 65535;
/// Bytes of the longest tensor name (GGUF specification).
pub const MAX_TENSOR_NAME_BYTES: u64 = 64;
/// Dimensions of a tensor.
pub const MAX_DIMS: u32 = 4;
/// How deep arrays may nest: 1 is a plain array.
pub const MAX_ARRAY_DEPTH: u32 = 8;
/// Alignment of tensor data where `general.alignment` is absent.
pub const DEFAULT_ALIGNMENT: u64 = 32;
/// Largest accepted `general.alignment`.
pub const MAX_ALIGNMENT: u64 = 1 << 20;
/// Smallest accepted `general.alignment` (GGUF specification: a multiple of 8).
pub(super) const MIN_ALIGNMENT: u64 = 8;

/// Bytes of everything before the tensors' data. The largest vocabularies take some tens of MiB.
pub(super) const MAX_HEADER_BYTES: u64 = 256 << 20;
pub(super) const MAGIC: [u8; 4] = *b"GGUF";
pub(super) const ALIGNMENT_KEY: &str = "general.alignment";
