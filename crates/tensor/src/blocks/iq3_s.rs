//! IQ3_S: 256 weights as rows of a grid, four at a time, with signs, in eight sub-blocks of 32 with
//! a 4-bit scale each.
//!
//! Element `i` of sub-block `s` is `d * (2 * scale[s] + 1) * magnitude`, with its sign.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`, f16 |
//! | 2..66 | low eight bits of the indices of rows |
//! | 66..74 | bit `b` of byte `k` is the ninth bit of index `8 k + b` |
//! | 74..106 | bit `b` of byte `k` is the sign of element `8 k + b` |
//! | 106..110 | scales; byte `k` holds that of sub-block `2 k` (low nibble) and `2 k + 1` |

use super::codebook::{Codebook, odd_scales, signed};
pub use super::codebook::{LEN, Unpacked};
use super::grids::iq3;
use super::split::{bytes_at, f16_bits};

/// Bytes of a block.
pub const BYTES: usize = 110;
/// Byte of the scale of scales.
pub const SCALE_AT: usize = 0;
/// First byte of the indices.
pub const INDICES_AT: usize = 2;
/// First byte of the ninth bits.
pub const HIGH_AT: usize = 66;
/// First byte of the signs.
pub const SIGNS_AT: usize = 74;
/// First byte of the sub-block scales.
pub const SUB_SCALES_AT: usize = 106;
/// What indices and sub-scales stand for: magnitudes, from 8 on negated.
pub const CODEBOOK: Codebook = Codebook { values: signed([1, 3, 5, 7, 9, 11, 13, 15], 8), unit: 1.0 };

/// Takes a block apart.
pub fn unpack(block: &[u8; BYTES]) -> Unpacked {
    let rows: &[u8; 64] = bytes_at(block, INDICES_AT);
    let high: &[u8; 8] = bytes_at(block, HIGH_AT);
    let signs: &[u8; 32] = bytes_at(block, SIGNS_AT);
    let scales: &[u8; 4] = bytes_at(block, SUB_SCALES_AT);
    let mut parts =
        Unpacked { d_bits: f16_bits(block, SCALE_AT), scales: odd_scales(scales, 2), ..Unpacked::ZERO };
    for (at, low) in rows.iter().enumerate() {
        let row = usize::from(*low) | usize::from(high[at / 8] >> (at % 8) & 1) << 8;
        parts.put_row(4 * at, &iq3::IQ3_S[row], signs[at / 2] >> (at % 2 * 4), 3);
    }
    parts
}

/// The values of a block.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    unpack(block).decode(&CODEBOOK, out);
}
