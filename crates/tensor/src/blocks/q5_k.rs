//! Q5_K: 256 unsigned 5-bit quants in eight sub-blocks of 32, each with a 6-bit scale and a 6-bit
//! minimum.
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

use super::affine::Affine;
use super::fit::affine_block;
use super::q4_k::{pack_quant_nibbles, pack_sub_scales, quant_nibbles, sub_scales};
use super::row::max_encodable;
use super::split::{bytes_at, f16_bits, pack_bit};

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
pub type Unpacked = Affine<SUBS>;

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
    unpack(block).values(out);
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
