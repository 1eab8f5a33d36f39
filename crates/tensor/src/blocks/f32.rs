//! F32: IEEE 754 binary32, little-endian.

/// Elements of a block.
pub const LEN: usize = 1;
/// Bytes of a block.
pub const BYTES: usize = 4;

/// The value of an element.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    *out = [f32::from_le_bytes(*block)];
}

/// Stores an element.
pub fn encode(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    *block = values[0].to_le_bytes();
}
