//! IQ2_XXS: 256 weights as rows of a grid, eight at a time, with signs, in eight sub-blocks of 32
//! with a 4-bit scale each.
//!
//! Element `i` of sub-block `s` is `d * (2 * scale[s] + 1) / 8 * magnitude`, with its sign.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`, f16 |
//! | 2..66 | for each sub-block four indices of rows, then a little-endian u32: four times 7 bits of signs, the scale in the top 4 |
//!
//! Seven signs stand for eight: the last makes the number of negative elements even.

use super::codebook::{Codebook, signed};
pub use super::codebook::{LEN, Unpacked};
use super::grids::{even_signs, iq2};
use super::split::{bytes_at, f16_bits};

/// Bytes of a block.
pub const BYTES: usize = 66;
/// Byte of the scale of scales.
pub const SCALE_AT: usize = 0;
/// First byte of the sub-blocks.
pub const SUB_BLOCKS_AT: usize = 2;
/// What indices and sub-scales stand for: three magnitudes, from 4 on negated. All IQ2 types have
/// this one.
pub const CODEBOOK: Codebook = Codebook { values: signed([8, 25, 43], 4), unit: 0.125 };

/// Takes a block apart.
pub fn unpack(block: &[u8; BYTES]) -> Unpacked {
    let subs: &[u8; 64] = bytes_at(block, SUB_BLOCKS_AT);
    let mut parts = Unpacked { d_bits: f16_bits(block, SCALE_AT), ..Unpacked::ZERO };
    for (sub, bytes) in subs.as_chunks::<8>().0.iter().enumerate() {
        let word = u32::from_le_bytes(*bytes_at(bytes, 4));
        parts.scales[2 * sub..2 * sub + 2].fill((2 * (word >> 28) + 1) as i8);
        for eight in 0..4 {
            let signs = even_signs((word >> (7 * eight)) as u8 & 0x7f);
            parts.put_row(32 * sub + 8 * eight, &iq2::IQ2_XXS[usize::from(bytes[eight])], signs, 2);
        }
    }
    parts
}

/// The values of a block.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    unpack(block).decode(&CODEBOOK, out);
}
