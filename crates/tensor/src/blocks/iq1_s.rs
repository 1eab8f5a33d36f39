//! IQ1_S: 256 weights as rows of a grid of -1, 0, 1, eight at a time, in eight sub-blocks of 32
//! with a 3-bit scale and a shift each.
//!
//! Element `i` of sub-block `s` is `d * (2 * scale[s] + 1) * (digit - 1 + shift[s])`, where the
//! shift is an eighth or minus an eighth.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`, f16 |
//! | 2..34 | low eight bits of the indices of rows |
//! | 34..50 | a little-endian u16 for each sub-block: four times 3 upper bits of an index, the scale, and a set bit for a negative shift |

use super::codebook::Codebook;
pub use super::codebook::{LEN, Unpacked};
use super::grids::iq1;
use super::split::{bytes_at, f16_bits};

/// Bytes of a block.
pub const BYTES: usize = 50;
/// Byte of the scale of scales.
pub const SCALE_AT: usize = 0;
/// First byte of the indices.
pub const INDICES_AT: usize = 2;
/// First byte of upper bits, scales and shifts.
pub const HIGH_AT: usize = 34;
/// What indices and sub-scales stand for: eight times the digits with their shift, from 4 on with a
/// negative one. IQ1_M has the same.
pub const CODEBOOK: Codebook =
    Codebook { values: [-7, 1, 9, 0, -9, -1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0], unit: 0.125 };

/// Takes a block apart.
pub fn unpack(block: &[u8; BYTES]) -> Unpacked {
    let rows: &[u8; 32] = bytes_at(block, INDICES_AT);
    let words: &[u8; 16] = bytes_at(block, HIGH_AT);
    let mut parts = Unpacked { d_bits: f16_bits(block, SCALE_AT), ..Unpacked::ZERO };
    for (sub, word) in words.as_chunks().0.iter().enumerate() {
        let word = u16::from_le_bytes(*word);
        parts.scales[2 * sub..2 * sub + 2].fill((2 * (word >> 12 & 7) + 1) as i8);
        let shifts = if word >> 15 == 1 { 0xff } else { 0 };
        for eight in 0..4 {
            let at = 4 * sub + eight;
            let row = usize::from(rows[at]) | usize::from(word >> (3 * eight) & 7) << 8;
            parts.put_row(8 * at, &iq1::IQ1_S[row], shifts, 2);
        }
    }
    parts
}

/// The values of a block.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    unpack(block).decode(&CODEBOOK, out);
}
