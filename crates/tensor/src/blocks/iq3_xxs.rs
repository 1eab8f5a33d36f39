//! IQ3_XXS: 256 weights as rows of a grid, four at a time, with signs, in eight sub-blocks of 32
//! with a 4-bit scale each.
//!
//! Element `i` of sub-block `s` is `d * (2 * scale[s] + 1) / 4 * magnitude`, with its sign.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`, f16 |
//! | 2..66 | indices of rows of the grid |
//! | 66..98 | a little-endian u32 for each sub-block: four times 7 bits of signs, then the scale in the top 4 bits |
//!
//! Seven signs stand for eight: the last makes the number of negative elements even.

use super::codebook::{Codebook, signed};
pub use super::codebook::{LEN, Unpacked};
use super::grids::{even_signs, iq3};
use super::split::{bytes_at, f16_bits};

/// Bytes of a block.
pub const BYTES: usize = 98;
/// Byte of the scale of scales.
pub const SCALE_AT: usize = 0;
/// First byte of the indices.
pub const INDICES_AT: usize = 2;
/// First byte of signs and scales.
pub const SIGNS_AT: usize = 66;
/// What indices and sub-scales stand for: magnitudes, from 8 on negated.
pub const CODEBOOK: Codebook = Codebook { values: signed([4, 12, 20, 28, 36, 44, 52, 62], 8), unit: 0.25 };

/// Takes a block apart.
pub fn unpack(block: &[u8; BYTES]) -> Unpacked {
    let rows: &[u8; 64] = bytes_at(block, INDICES_AT);
    let words: &[u8; 32] = bytes_at(block, SIGNS_AT);
    let mut parts = Unpacked { d_bits: f16_bits(block, SCALE_AT), ..Unpacked::ZERO };
    for (sub, word) in words.as_chunks().0.iter().enumerate() {
        let word = u32::from_le_bytes(*word);
        parts.scales[2 * sub..2 * sub + 2].fill((2 * (word >> 28) + 1) as i8);
        for eight in 0..4 {
            let signs = even_signs((word >> (7 * eight)) as u8 & 0x7f);
            for four in 0..2 {
                let at = 8 * sub + 2 * eight + four;
                let digits = &iq3::IQ3_XXS[usize::from(rows[at])];
                parts.put_row(4 * at, digits, signs >> (4 * four), 3);
            }
        }
    }
    parts
}

/// The values of a block.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    unpack(block).decode(&CODEBOOK, out);
}
