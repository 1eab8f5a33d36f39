//! Q5_K: 256 unsigned 5-bit quants in eight sub-blocks of 32, each with a 6-bit scale and a 6-bit minimum.
//!
//! Element `i` of sub-block `s` is `(d * scales[s]) * q - (dmin * mins[s])`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`, f16 |
//! | 2..4 | `dmin`, f16 |
//! | 4..16 | scales and minimums, 6 bits each, as in [`q4_k`] |
//! | 16..48 | bit `s` of byte `c` is the fifth bit of element `c` of sub-block `s` |
//! | 48..176 | low four bits, as the quants of [`q4_k`] |
//!
//! [`q4_k`]: super::q4_k

use super::fit::{Affine, affine_block};
use super::q4_k::{pack_quant_nibbles, pack_sub_scales, quant_nibbles, sub_scales};
use super::row::max_encodable;
use super::split::{bytes_at, f16_bits, f16_value, pack_bit};

/// Elements of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 176;
/// Byte of the scale of scales.
pub const SCALE_AT: usize = 0;
/// Byte of the scale of minimums.
pub const MIN_AT: usize = 2;
/// First byte of the packed sub-block scales and minimums.
pub const SUB_SCALES_AT: usize = 4;
/// First byte of the fifth bits.
pub const HIGH_AT: usize = 16;
/// First byte of the low nibbles.
pub const QUANTS_AT: usize = 48;
/// Elements of a sub-block.
pub const SUB_LEN: usize = 32;
/// Sub-blocks of a block.
pub const SUBS: usize = 8;
/// Largest magnitude that [`encode`] takes.
pub const MAX_VALUE: f32 = max_encodable(63.0);

/// A block taken apart without loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked {
    /// The f16 bits of the scale of scales.
    pub d_bits: u16,
    /// The f16 bits of the scale of minimums.
    pub dmin_bits: u16,
    /// Scale of each sub-block, 0..=63.
    pub scales: [u8; SUBS],
    /// Minimum of each sub-block, 0..=63; it is subtracted.
    pub mins: [u8; SUBS],
    /// Quants, 0..=31, in element order.
    pub quants: [u8; LEN],
}

impl Unpacked {
    /// The scale of scales.
    pub fn d(&self) -> f32 {
        f16_value(self.d_bits)
    }

    /// The scale of minimums.
    pub fn dmin(&self) -> f32 {
        f16_value(self.dmin_bits)
    }
}

/// Takes a block apart.
pub fn unpack(block: &[u8; BYTES]) -> Unpacked {
    let (scales, mins) = sub_scales(bytes_at(block, SUB_SCALES_AT));
    let high: &[u8; SUB_LEN] = bytes_at(block, HIGH_AT);
    let low = quant_nibbles(bytes_at(block, QUANTS_AT));
    let quants = std::array::from_fn(|i| low[i] | (high[i % SUB_LEN] >> (i / SUB_LEN) & 1) << 4);
    Unpacked { d_bits: f16_bits(block, SCALE_AT), dmin_bits: f16_bits(block, MIN_AT), scales, mins, quants }
}

/// The values of a block.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let parts = unpack(block);
    let (d, dmin) = (parts.d(), parts.dmin());
    for (i, (value, quant)) in out.iter_mut().zip(parts.quants).enumerate() {
        let scale = d * f32::from(parts.scales[i / SUB_LEN]);
        let min = dmin * f32::from(parts.mins[i / SUB_LEN]);
        *value = scale * f32::from(quant) - min;
    }
}

/// Quantises finite values of at most [`MAX_VALUE`] with a small sum of squared errors.
pub fn encode(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let Affine { d_bits, dmin_bits, scales, mins, quants } = affine_block::<SUBS>(values, 31, 63);
    block[SCALE_AT..MIN_AT].copy_from_slice(&d_bits.to_le_bytes());
    block[MIN_AT..SUB_SCALES_AT].copy_from_slice(&dmin_bits.to_le_bytes());
    block[SUB_SCALES_AT..HIGH_AT].copy_from_slice(&pack_sub_scales(&scales, &mins));
    block[HIGH_AT..QUANTS_AT].copy_from_slice(&pack_bit(&quants, 4));
    block[QUANTS_AT..].copy_from_slice(&pack_quant_nibbles(&quants));
}
