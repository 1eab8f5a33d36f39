//! TQ2_0: 256 ternary quants of 2 bits and one f16 scale; element `i` is `d * (q[i] - 1)`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..64 | two halves of 32 bytes (see [`unpack`]) |
//! | 64..66 | `d`, f16 |

use super::split::{bytes_at, f16_bits, f16_value, two_bits};

/// Elements of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 66;
/// First byte of the quants.
pub const QUANTS_AT: usize = 0;
/// Byte of the scale.
pub const SCALE_AT: usize = 64;
/// What is subtracted from a raw quant.
pub const BIAS: i8 = 1;

/// A block taken apart without loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked {
    /// The scale's f16 bits.
    pub d_bits: u16,
    /// Raw quants in element order, 0..=3; quantisers write no 3.
    pub quants: [u8; LEN],
}

impl Unpacked {
    /// The scale.
    pub fn d(&self) -> f32 {
        f16_value(self.d_bits)
    }
}

/// Takes a block apart.
///
/// Each half of 128 elements is four quarters of 32; quarter `k` takes bits `2k` and `2k + 1` of
/// the half's 32 bytes.
pub fn unpack(block: &[u8; BYTES]) -> Unpacked {
    Unpacked { d_bits: f16_bits(block, SCALE_AT), quants: two_bits(bytes_at(block, QUANTS_AT)) }
}

/// The values of a block.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let parts = unpack(block);
    let d = parts.d();
    for (value, quant) in out.iter_mut().zip(parts.quants) {
        *value = d * f32::from(quant as i8 - BIAS);
    }
}
