//! Q3_K: 256 unsigned 3-bit quants in sixteen sub-blocks of 16, each with a signed 6-bit scale.
//!
//! Element `i` of sub-block `s` is `(d * scales[s]) * (q - 4)`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..32 | bit `i / 32` of byte `i % 32` is the third bit of element `i` |
//! | 32..96 | low two bits, two halves of 32 bytes (see [`unpack`]) |
//! | 96..108 | scales, 6 bits each, moved up by 32 (see [`unpack`]) |
//! | 108..110 | `d`, f16 |

use super::fit::{Scaled, scaled_block};
use super::row::max_encodable;
use super::split::{bytes_at, f16_bits, f16_value, pack_bit, pack_two_bits, two_bits};

/// Elements of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 110;
/// First byte of the third bits.
pub const HIGH_AT: usize = 0;
/// First byte of the low two bits.
pub const LOW_AT: usize = 32;
/// First byte of the packed sub-block scales.
pub const SUB_SCALES_AT: usize = 96;
/// Byte of the scale of scales.
pub const SCALE_AT: usize = 108;
/// Elements of a sub-block.
pub const SUB_LEN: usize = 16;
/// Sub-blocks of a block.
pub const SUBS: usize = 16;
/// What is subtracted from a raw quant.
pub const BIAS: i8 = 4;
/// What is subtracted from a raw scale.
pub const SUB_SCALE_BIAS: i8 = 32;
/// Largest magnitude that [`encode`] takes.
pub const MAX_VALUE: f32 = max_encodable(3.0 * 31.0);

/// A block taken apart without loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked {
    /// The f16 bits of the scale of scales.
    pub d_bits: u16,
    /// Scale of each sub-block, -32..=31.
    pub scales: [i8; SUBS],
    /// Raw quants, 0..=7, in element order.
    pub quants: [u8; LEN],
}

impl Unpacked {
    /// The scale of scales.
    pub fn d(&self) -> f32 {
        f16_value(self.d_bits)
    }
}

/// Takes a block apart.
///
/// Each half of 128 elements is four quarters of 32; quarter `k` takes bits `2k` and `2k + 1` of
/// the half's 32 low bytes. Of scale `s` the low four bits are a nibble of scale byte `s % 8` (low
/// for the first eight), the top two are bits `2 (s / 4)` and one more of scale byte `8 + s % 4`.
pub fn unpack(block: &[u8; BYTES]) -> Unpacked {
    let high: &[u8; 32] = bytes_at(block, HIGH_AT);
    let low = two_bits(bytes_at(block, LOW_AT));
    let packed: &[u8; 12] = bytes_at(block, SUB_SCALES_AT);
    let scale = |s: usize| {
        let low = packed[s % 8] >> (4 * (s / 8)) & 0x0f;
        let top = packed[8 + s % 4] >> (2 * (s / 4)) & 3;
        (low | top << 4) as i8 - SUB_SCALE_BIAS
    };
    Unpacked {
        d_bits: f16_bits(block, SCALE_AT),
        scales: std::array::from_fn(scale),
        quants: std::array::from_fn(|i| low[i] | (high[i % 32] >> (i / 32) & 1) << 2),
    }
}

/// The values of a block.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let parts = unpack(block);
    let d = parts.d();
    for (i, (value, quant)) in out.iter_mut().zip(parts.quants).enumerate() {
        let scale = d * f32::from(parts.scales[i / SUB_LEN]);
        *value = scale * f32::from(quant as i8 - BIAS);
    }
}

/// Quantises finite values of at most [`MAX_VALUE`] with a small sum of squared errors.
pub fn encode(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let Scaled { d_bits, scales, quants } = scaled_block::<SUBS>(values, -BIAS, -SUB_SCALE_BIAS);
    block[HIGH_AT..LOW_AT].copy_from_slice(&pack_bit(&quants, 2));
    block[LOW_AT..SUB_SCALES_AT].copy_from_slice(&pack_two_bits(&quants));
    let packed = &mut block[SUB_SCALES_AT..SCALE_AT];
    packed.fill(0);
    for (s, scale) in scales.into_iter().enumerate() {
        let raw = (scale + SUB_SCALE_BIAS) as u8;
        packed[s % 8] |= (raw & 0x0f) << (4 * (s / 8));
        packed[8 + s % 4] |= (raw >> 4) << (2 * (s / 4));
    }
    block[SCALE_AT..].copy_from_slice(&d_bits.to_le_bytes());
}
