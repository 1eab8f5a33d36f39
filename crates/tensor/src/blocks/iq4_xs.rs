//! IQ4_XS: 256 nibbles that index the table of IQ4_NL, in eight sub-blocks of 32 with a 6-bit scale
//! each.
//!
//! Element `i` of sub-block `s` is `(d * (scale[s] - 32)) * VALUES[q]`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`, f16 |
//! | 2..4 | little-endian u16 whose bits `2 s` and `2 s + 1` are the upper bits of scale `s` |
//! | 4..8 | low nibbles of the scales; byte `k` holds scale `2 k` (low nibble) and `2 k + 1` |
//! | 8..136 | 16 bytes a sub-block; byte `i` holds element `i` (low nibble) and element `i + 16` (high nibble) |

use super::codebook::{Codebook, SUB_LEN};
pub use super::codebook::{LEN, Unpacked};
use super::iq4_nl;
use super::split::{bytes_at, f16_bits, nibbles};

/// Bytes of a block.
pub const BYTES: usize = 136;
/// Byte of the scale of scales.
pub const SCALE_AT: usize = 0;
/// First byte of the upper bits of the scales.
pub const HIGH_SCALES_AT: usize = 2;
/// First byte of the low nibbles of the scales.
pub const LOW_SCALES_AT: usize = 4;
/// First byte of the quants.
pub const QUANTS_AT: usize = 8;
/// What indices and sub-scales stand for.
pub const CODEBOOK: Codebook = Codebook { values: iq4_nl::VALUES, unit: 1.0 };

/// Takes a block apart.
pub fn unpack(block: &[u8; BYTES]) -> Unpacked {
    let high = u16::from_le_bytes(*bytes_at(block, HIGH_SCALES_AT));
    let low: &[u8; 4] = bytes_at(block, LOW_SCALES_AT);
    let mut parts = Unpacked { d_bits: f16_bits(block, SCALE_AT), ..Unpacked::ZERO };
    for (sub, scale) in parts.scales.iter_mut().enumerate() {
        let sub = sub * SUB_LEN / 32;
        let low = low[sub / 2] >> (4 * (sub % 2)) & 15;
        *scale = (low | ((high >> (2 * sub) & 3) as u8) << 4) as i8 - 32;
    }
    let runs = block[QUANTS_AT..].as_chunks::<16>().0.iter();
    for (indices, run) in parts.indices.as_chunks_mut::<32>().0.iter_mut().zip(runs) {
        *indices = nibbles(run);
    }
    parts
}

/// The values of a block.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    unpack(block).decode(&CODEBOOK, out);
}
