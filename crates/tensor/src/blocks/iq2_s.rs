//! IQ2_S: 256 weights as rows of a grid, eight at a time, with signs, in sixteen sub-blocks of 16
//! with a 4-bit scale each.
//!
//! Element `i` of sub-block `s` is `d * (2 * scale[s] + 1) / 8 * magnitude`, with its sign.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`, f16 |
//! | 2..34 | low eight bits of the indices of rows |
//! | 34..66 | bit `b` of byte `k` is the sign of element `8 k + b` |
//! | 66..74 | bits `2 b` and `2 b + 1` of byte `k` are the upper bits of index `4 k + b` |
//! | 74..82 | scales; byte `k` holds that of sub-block `2 k` (low nibble) and `2 k + 1` |

use super::codebook::{Codebook, odd_scales};
pub use super::codebook::{LEN, Unpacked};
use super::grids::iq2;
use super::iq2_xxs;
use super::split::{bytes_at, f16_bits};

/// Bytes of a block.
pub const BYTES: usize = 82;
/// Byte of the scale of scales.
pub const SCALE_AT: usize = 0;
/// First byte of the indices.
pub const INDICES_AT: usize = 2;
/// First byte of the signs.
pub const SIGNS_AT: usize = 34;
/// First byte of the upper bits of the indices.
pub const HIGH_AT: usize = 66;
/// First byte of the sub-block scales.
pub const SUB_SCALES_AT: usize = 74;
/// What indices and sub-scales stand for.
pub const CODEBOOK: Codebook = iq2_xxs::CODEBOOK;

/// Takes a block apart.
pub fn unpack(block: &[u8; BYTES]) -> Unpacked {
    let rows: &[u8; 32] = bytes_at(block, INDICES_AT);
    let signs: &[u8; 32] = bytes_at(block, SIGNS_AT);
    let high: &[u8; 8] = bytes_at(block, HIGH_AT);
    let scales: &[u8; 8] = bytes_at(block, SUB_SCALES_AT);
    let mut parts =
        Unpacked { d_bits: f16_bits(block, SCALE_AT), scales: odd_scales(scales, 1), ..Unpacked::ZERO };
    for (at, low) in rows.iter().enumerate() {
        let row = usize::from(*low) | usize::from(high[at / 4] >> (at % 4 * 2) & 3) << 8;
        parts.put_row(8 * at, &iq2::IQ2_S[row], signs[at], 2);
    }
    parts
}

/// The values of a block.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    unpack(block).decode(&CODEBOOK, out);
}
