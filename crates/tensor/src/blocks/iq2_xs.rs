//! IQ2_XS: 256 weights as rows of a grid, eight at a time, with signs, in sixteen sub-blocks of 16
//! with a 4-bit scale each.
//!
//! Element `i` of sub-block `s` is `d * (2 * scale[s] + 1) / 8 * magnitude`, with its sign.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`, f16 |
//! | 2..66 | a little-endian u16 for every eight elements: 9 bits of the row's index, then 7 bits of signs |
//! | 66..74 | scales; byte `k` holds that of sub-block `2 k` (low nibble) and `2 k + 1` |
//!
//! Seven signs stand for eight: the last makes the number of negative elements even.

use super::codebook::{Codebook, odd_scales};
pub use super::codebook::{LEN, Unpacked};
use super::grids::{even_signs, iq2};
use super::iq2_xxs;
use super::split::{bytes_at, f16_bits};

/// Bytes of a block.
pub const BYTES: usize = 74;
/// Byte of the scale of scales.
pub const SCALE_AT: usize = 0;
/// First byte of the rows.
pub const ROWS_AT: usize = 2;
/// First byte of the sub-block scales.
pub const SUB_SCALES_AT: usize = 66;
/// What indices and sub-scales stand for.
pub const CODEBOOK: Codebook = iq2_xxs::CODEBOOK;

/// Takes a block apart.
pub fn unpack(block: &[u8; BYTES]) -> Unpacked {
    let rows: &[u8; 64] = bytes_at(block, ROWS_AT);
    let scales: &[u8; 8] = bytes_at(block, SUB_SCALES_AT);
    let mut parts =
        Unpacked { d_bits: f16_bits(block, SCALE_AT), scales: odd_scales(scales, 1), ..Unpacked::ZERO };
    for (eight, row) in rows.as_chunks().0.iter().enumerate() {
        let row = u16::from_le_bytes(*row);
        let signs = even_signs((row >> 9) as u8);
        parts.put_row(8 * eight, &iq2::IQ2_XS[usize::from(row & 511)], signs, 2);
    }
    parts
}

/// The values of a block.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    unpack(block).decode(&CODEBOOK, out);
}
