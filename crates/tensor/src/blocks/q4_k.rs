//! Q4_K: 256 unsigned nibbles in eight sub-blocks of 32, each with a 6-bit scale and a 6-bit
//! minimum.
//!
//! Element `i` of sub-block `s` is `(d * scales[s]) * q - (dmin * mins[s])`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`, f16 |
//! | 2..4 | `dmin`, f16 |
//! | 4..16 | scales and minimums, 6 bits each (see [`unpack`]) |
//! | 16..144 | four runs of 32 bytes; run `r` holds sub-block `2r` in low nibbles and `2r + 1` in high nibbles |

use super::affine::Affine;
use super::fit::affine_block;
use super::row::max_encodable;
use super::split::{bytes_at, f16_bits};

/// Elements of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 144;
/// Byte of the scale of scales.
pub const SCALE_AT: usize = 0;
/// Byte of the scale of minimums.
pub const MIN_AT: usize = 2;
/// First byte of the packed sub-block scales and minimums.
pub const SUB_SCALES_AT: usize = 4;
/// First byte of the quants.
pub const QUANTS_AT: usize = 16;
/// Elements of a sub-block.
pub const SUB_LEN: usize = 32;
/// Sub-blocks of a block.
pub const SUBS: usize = 8;
/// Largest magnitude that [`encode`] takes.
pub const MAX_VALUE: f32 = max_encodable(63.0);

/// A block taken apart without loss.
pub type Unpacked = Affine<SUBS>;

/// Takes a block apart.
pub fn unpack(block: &[u8; BYTES]) -> Unpacked {
    let (scales, mins) = sub_scales(bytes_at(block, SUB_SCALES_AT));
    let quants = quant_nibbles(bytes_at(block, QUANTS_AT));
    Unpacked { d_bits: f16_bits(block, SCALE_AT), dmin_bits: f16_bits(block, MIN_AT), scales, mins, quants }
}

/// The values of a block.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    unpack(block).values(out);
}

/// The 256 nibbles, in element order.
pub(super) fn quant_nibbles(packed: &[u8; LEN / 2]) -> [u8; LEN] {
    std::array::from_fn(|i| {
        let (run, within) = (i / (2 * SUB_LEN), i % (2 * SUB_LEN));
        let byte = packed[run * SUB_LEN + within % SUB_LEN];
        if within < SUB_LEN { byte & 0x0f } else { byte >> 4 }
    })
}

/// Scales and minimums of the eight sub-blocks.
///
/// Bytes 0..4 hold scales 0..4 in their low six bits, bytes 4..8 minimums 0..4. Of scales and
/// minimums 4..8 the low four bits share bytes 8..12 (scale low, minimum high) and the top two bits
/// are the top bits of bytes 0..4 and 4..8.
pub(super) fn sub_scales(packed: &[u8; 12]) -> ([u8; SUBS], [u8; SUBS]) {
    let scale = |s: usize| match s {
        0..4 => packed[s] & 0x3f,
        _ => (packed[s + 4] & 0x0f) | ((packed[s - 4] >> 6) << 4),
    };
    let min = |s: usize| match s {
        0..4 => packed[s + 4] & 0x3f,
        _ => (packed[s + 4] >> 4) | ((packed[s] >> 6) << 4),
    };
    (std::array::from_fn(scale), std::array::from_fn(min))
}

/// Quantises finite values of at most [`MAX_VALUE`] with a small sum of squared errors.
pub fn encode(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let Affine { d_bits, dmin_bits, scales, mins, quants } = affine_block::<SUBS>(values, 15, 63);
    block[SCALE_AT..MIN_AT].copy_from_slice(&d_bits.to_le_bytes());
    block[MIN_AT..SUB_SCALES_AT].copy_from_slice(&dmin_bits.to_le_bytes());
    block[SUB_SCALES_AT..QUANTS_AT].copy_from_slice(&pack_sub_scales(&scales, &mins));
    block[QUANTS_AT..].copy_from_slice(&pack_quant_nibbles(&quants));
}

/// The inverse of [`quant_nibbles`] for quants of which only the low four bits count.
pub(super) fn pack_quant_nibbles(quants: &[u8; LEN]) -> [u8; LEN / 2] {
    std::array::from_fn(|i| {
        let first = i / SUB_LEN * 2 * SUB_LEN + i % SUB_LEN;
        quants[first] & 0x0f | (quants[first + SUB_LEN] & 0x0f) << 4
    })
}

/// The inverse of [`sub_scales`].
pub(super) fn pack_sub_scales(scales: &[u8; SUBS], mins: &[u8; SUBS]) -> [u8; 12] {
    std::array::from_fn(|i| match i {
        0..4 => scales[i] | scales[i + 4] >> 4 << 6,
        4..8 => mins[i - 4] | mins[i] >> 4 << 6,
        _ => scales[i - 4] & 0x0f | (mins[i - 4] & 0x0f) << 4,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sub_scales_come_back() {
        let packed: [u8; 12] = std::array::from_fn(|i| (i * 73 + 29) as u8);
        let (scales, mins) = sub_scales(&packed);
        assert_eq!(pack_sub_scales(&scales, &mins), packed);
    }
}
