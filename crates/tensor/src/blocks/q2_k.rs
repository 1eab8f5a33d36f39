//! Q2_K: 256 unsigned 2-bit quants in sixteen sub-blocks of 16, each with a 4-bit scale and a 4-bit
//! minimum.
//!
//! Element `i` of sub-block `s` is `(d * scales[s]) * q - (dmin * mins[s])`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..16 | byte `s` holds scale (low nibble) and minimum (high nibble) of sub-block `s` |
//! | 16..80 | two halves of 32 bytes (see [`unpack`]) |
//! | 80..82 | `d`, f16 |
//! | 82..84 | `dmin`, f16 |

use super::affine::Affine;
use super::fit::affine_block;
use super::row::max_encodable;
use super::split::{bytes_at, f16_bits, pack_two_bits, two_bits};

/// Elements of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 84;
/// First byte of the sub-block scales and minimums.
pub const SUB_SCALES_AT: usize = 0;
/// First byte of the quants.
pub const QUANTS_AT: usize = 16;
/// Byte of the scale of scales.
pub const SCALE_AT: usize = 80;
/// Byte of the scale of minimums.
pub const MIN_AT: usize = 82;
/// Elements of a sub-block.
pub const SUB_LEN: usize = 16;
/// Sub-blocks of a block.
pub const SUBS: usize = 16;
/// Largest magnitude that [`encode`] takes.
pub const MAX_VALUE: f32 = max_encodable(15.0);

/// A block taken apart without loss.
pub type Unpacked = Affine<SUBS>;

/// Takes a block apart.
///
/// Each half of 128 elements is four quarters of 32; quarter `k` takes bits `2k` and `2k + 1` of
/// the half's 32 bytes.
pub fn unpack(block: &[u8; BYTES]) -> Unpacked {
    let sub_scales: &[u8; SUBS] = bytes_at(block, SUB_SCALES_AT);
    Unpacked {
        d_bits: f16_bits(block, SCALE_AT),
        dmin_bits: f16_bits(block, MIN_AT),
        scales: sub_scales.map(|byte| byte & 0x0f),
        mins: sub_scales.map(|byte| byte >> 4),
        quants: two_bits(bytes_at(block, QUANTS_AT)),
    }
}

/// The values of a block.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    unpack(block).values(out);
}

/// Quantises finite values of at most [`MAX_VALUE`] with a small sum of squared errors.
pub fn encode(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let Affine { d_bits, dmin_bits, scales, mins, quants } = affine_block::<SUBS>(values, 3, 15);
    for (sub, byte) in block[SUB_SCALES_AT..QUANTS_AT].iter_mut().enumerate() {
        *byte = scales[sub] | mins[sub] << 4;
    }
    block[QUANTS_AT..SCALE_AT].copy_from_slice(&pack_two_bits(&quants));
    block[SCALE_AT..MIN_AT].copy_from_slice(&d_bits.to_le_bytes());
    block[MIN_AT..].copy_from_slice(&dmin_bits.to_le_bytes());
}
