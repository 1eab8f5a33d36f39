//! Q6_K: 256 unsigned 6-bit quants in sixteen sub-blocks of 16, each with a signed 8-bit scale.
//!
//! Element `i` of sub-block `s` is `(d * scales[s]) * (q - 32)`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..128 | low four bits, two halves of 64 bytes (see [`unpack`]) |
//! | 128..192 | high two bits, two halves of 32 bytes |
//! | 192..208 | scales, i8 |
//! | 208..210 | `d`, f16 |

use super::fit::{Scaled, scaled_block};
use super::row::max_encodable;
use super::split::{bytes_at, f16_bits, f16_value};

/// Elements of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 210;
/// First byte of the low four bits.
pub const LOW_AT: usize = 0;
/// First byte of the high two bits.
pub const HIGH_AT: usize = 128;
/// First byte of the sub-block scales.
pub const SUB_SCALES_AT: usize = 192;
/// Byte of the scale of scales.
pub const SCALE_AT: usize = 208;
/// Elements of a sub-block.
pub const SUB_LEN: usize = 16;
/// Sub-blocks of a block.
pub const SUBS: usize = 16;
/// What is subtracted from a raw quant.
pub const BIAS: i8 = 32;
/// Largest magnitude that [`encode`] takes.
pub const MAX_VALUE: f32 = max_encodable(31.0 * 127.0);

/// A block taken apart without loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked {
    /// The f16 bits of the scale of scales.
    pub d_bits: u16,
    /// Scale of each sub-block.
    pub scales: [i8; SUBS],
    /// Raw quants, 0..=63, in element order.
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
/// Each half of 128 elements is four quarters of 32. In a half, quarters 0 and 1 take the low
/// nibbles of its 64 low bytes in order, quarters 2 and 3 the high nibbles; quarter `k` takes bits
/// `2k` and `2k + 1` of its 32 high bytes.
pub fn unpack(block: &[u8; BYTES]) -> Unpacked {
    let low: &[u8; 128] = bytes_at(block, LOW_AT);
    let high: &[u8; 64] = bytes_at(block, HIGH_AT);
    let scales: &[u8; SUBS] = bytes_at(block, SUB_SCALES_AT);
    let quants = std::array::from_fn(|i| {
        let (half, quarter, column) = (i / 128, i % 128 / 32, i % 32);
        let byte = low[half * 64 + quarter % 2 * 32 + column];
        let nibble = if quarter < 2 { byte & 0x0f } else { byte >> 4 };
        nibble | ((high[half * 32 + column] >> (2 * quarter)) & 3) << 4
    });
    Unpacked { d_bits: f16_bits(block, SCALE_AT), scales: scales.map(|byte| byte as i8), quants }
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
    let Scaled { d_bits, scales, quants } = scaled_block::<SUBS>(values, -BIAS, i8::MIN);
    block[..SUB_SCALES_AT].fill(0);
    for (i, quant) in quants.into_iter().enumerate() {
        let (half, quarter, column) = (i / 128, i % 128 / 32, i % 32);
        let low = &mut block[LOW_AT + half * 64 + quarter % 2 * 32 + column];
        *low |= (quant & 0x0f) << (quarter / 2 * 4);
        block[HIGH_AT + half * 32 + column] |= (quant >> 4) << (2 * quarter);
    }
    block[SUB_SCALES_AT..SCALE_AT].copy_from_slice(&scales.map(|scale| scale as u8));
    block[SCALE_AT..].copy_from_slice(&d_bits.to_le_bytes());
}
