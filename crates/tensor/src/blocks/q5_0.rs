//! Q5_0: 32 unsigned 5-bit quants and one f16 scale; element `i` is `d * (q[i] - 16)`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`, f16 |
//! | 2..6 | little-endian u32 whose bit `i` is bit 4 of element `i` |
//! | 6..22 | byte `i` holds the low bits of element `i` (low nibble) and element `i + 16` (high nibble) |

use super::split::{bytes_at, f16_bits, f16_value, five_bits};

/// Elements of a block.
pub const LEN: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 22;
/// Byte of the scale.
pub const SCALE_AT: usize = 0;
/// First byte of the fifth bits.
pub const HIGH_AT: usize = 2;
/// First byte of the low nibbles.
pub const QUANTS_AT: usize = 6;
/// What is subtracted from a raw quant.
pub const BIAS: i8 = 16;

/// A block taken apart without loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked {
    /// The scale's f16 bits.
    pub d_bits: u16,
    /// Raw quants, 0..=31, in element order.
    pub quants: [u8; LEN],
}

impl Unpacked {
    /// The scale.
    pub fn d(&self) -> f32 {
        f16_value(self.d_bits)
    }
}

/// Takes a block apart.
pub fn unpack(block: &[u8; BYTES]) -> Unpacked {
    Unpacked {
        d_bits: f16_bits(block, SCALE_AT),
        quants: five_bits(bytes_at(block, QUANTS_AT), *bytes_at(block, HIGH_AT)),
    }
}

/// The values of a block.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let parts = unpack(block);
    let d = parts.d();
    for (value, quant) in out.iter_mut().zip(parts.quants) {
        *value = d * f32::from(quant as i8 - BIAS);
    }
}
