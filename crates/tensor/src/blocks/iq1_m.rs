//! IQ1_M: 256 weights as rows of a grid of -1, 0, 1, eight at a time with a shift each, in sixteen
//! sub-blocks of 16 with a 3-bit scale.
//!
//! Element `i` of sub-block `s` is `d * (2 * scale[s] + 1) * (digit - 1 + shift)`, where the shift
//! is an eighth or minus an eighth.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..32 | low eight bits of the indices of rows |
//! | 32..48 | a nibble for each index, the low one of a byte first: three upper bits, and a set bit for a negative shift |
//! | 48..56 | four little-endian u16: each four scales of 3 bits, and in its top 4 bits a nibble of `d`, f16, the lowest first |

use super::codebook::Codebook;
pub use super::codebook::{LEN, Unpacked};
use super::grids::iq1;
use super::iq1_s;
use super::split::bytes_at;

/// Bytes of a block.
pub const BYTES: usize = 56;
/// First byte of the indices.
pub const INDICES_AT: usize = 0;
/// First byte of upper bits and shifts.
pub const HIGH_AT: usize = 32;
/// First byte of the sub-block scales, which hold the nibbles of the scale of scales too.
pub const SUB_SCALES_AT: usize = 48;
/// What indices and sub-scales stand for.
pub const CODEBOOK: Codebook = iq1_s::CODEBOOK;

/// Takes a block apart.
pub fn unpack(block: &[u8; BYTES]) -> Unpacked {
    let rows: &[u8; 32] = bytes_at(block, INDICES_AT);
    let high: &[u8; 16] = bytes_at(block, HIGH_AT);
    let words: &[u8; 8] = bytes_at(block, SUB_SCALES_AT);
    let mut parts = Unpacked::ZERO;
    for (at, word) in words.as_chunks().0.iter().enumerate() {
        let word = u16::from_le_bytes(*word);
        parts.d_bits |= word >> 12 << (4 * at);
        for (place, scale) in parts.scales[4 * at..4 * at + 4].iter_mut().enumerate() {
            *scale = (2 * (word >> (3 * place) & 7) + 1) as i8;
        }
    }
    for (at, low) in rows.iter().enumerate() {
        let nibble = high[at / 2] >> (at % 2 * 4) & 15;
        let row = usize::from(*low) | usize::from(nibble & 7) << 8;
        let shifts = if nibble & 8 != 0 { 0xff } else { 0 };
        parts.put_row(8 * at, &iq1::IQ1_S[row], shifts, 2);
    }
    parts
}

/// Writes the scale of scales of a block.
pub fn put_scale(block: &mut [u8], d_bits: u16) {
    for (at, word) in block[SUB_SCALES_AT..BYTES].as_chunks_mut::<2>().0.iter_mut().enumerate() {
        word[1] = (word[1] & 0x0f) | ((d_bits >> (4 * at) & 15) as u8) << 4;
    }
}

/// The values of a block.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    unpack(block).decode(&CODEBOOK, out);
}
