//! Q5_1: 32 unsigned 5-bit quants, an f16 scale and an f16 minimum; element `i` is `d * q[i] + m`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`, f16 |
//! | 2..4 | `m`, f16 |
//! | 4..8 | little-endian u32 whose bit `i` is bit 4 of element `i` |
//! | 8..24 | byte `i` holds the low bits of element `i` (low nibble) and element `i + 16` (high nibble) |

use super::fit::{fit_affine, nearest, stored};
use super::row::max_encodable;
use super::split::{bytes_at, f16_bits, f16_value, five_bits, pack_five_bits};

/// Elements of a block.
pub const LEN: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 24;
/// Byte of the scale.
pub const SCALE_AT: usize = 0;
/// Byte of the minimum.
pub const MIN_AT: usize = 2;
/// First byte of the fifth bits.
pub const HIGH_AT: usize = 4;
/// First byte of the low nibbles.
pub const QUANTS_AT: usize = 8;
/// Largest magnitude that [`encode`] takes.
pub const MAX_VALUE: f32 = max_encodable(1.0);

/// A block taken apart without loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked {
    /// The scale's f16 bits.
    pub d_bits: u16,
    /// The minimum's f16 bits.
    pub m_bits: u16,
    /// Quants, 0..=31, in element order.
    pub quants: [u8; LEN],
}

impl Unpacked {
    /// The scale.
    pub fn d(&self) -> f32 {
        f16_value(self.d_bits)
    }

    /// The minimum, which is added.
    pub fn m(&self) -> f32 {
        f16_value(self.m_bits)
    }
}

/// Takes a block apart.
pub fn unpack(block: &[u8; BYTES]) -> Unpacked {
    Unpacked {
        d_bits: f16_bits(block, SCALE_AT),
        m_bits: f16_bits(block, MIN_AT),
        quants: five_bits(bytes_at(block, QUANTS_AT), *bytes_at(block, HIGH_AT)),
    }
}

/// The values of a block.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let parts = unpack(block);
    let (d, m) = (parts.d(), parts.m());
    for (value, quant) in out.iter_mut().zip(parts.quants) {
        *value = d * f32::from(quant) + m;
    }
}

/// Quantises finite values of at most [`MAX_VALUE`] with a small sum of squared errors.
pub fn encode(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let (scale, offset) = fit_affine(values, 31, f32::INFINITY);
    let ((d_bits, d), (m_bits, m)) = (stored(scale), stored(offset));
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let quants = values.map(|x| nearest((x - m) * inverse, 0, 31) as u8);
    block[SCALE_AT..MIN_AT].copy_from_slice(&d_bits.to_le_bytes());
    block[MIN_AT..HIGH_AT].copy_from_slice(&m_bits.to_le_bytes());
    let (low, high) = pack_five_bits(&quants);
    block[HIGH_AT..QUANTS_AT].copy_from_slice(&high);
    block[QUANTS_AT..].copy_from_slice(&low);
}
