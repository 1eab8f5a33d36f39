//! Bit planes: one bit of each weight, stored apart from its other bits.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::format::{Nibbles, STEPS, nibbles, put_nibbles};
use crate::arch::{LANES, Simd};
use crate::quantise::BLOCK;

/// Plane `i` belongs to vector `i` of the weights: its bit `b` belongs to byte `b`.
pub(super) type Planes = [u64; STEPS];

/// Packs a bit of each weight of 16 rows, of which bit `c` belongs to column `c`: nibble `i` of row
/// `l` becomes nibble `l` of plane `i`.
#[inline(always)]
pub(super) fn planes(rows: [u32; LANES]) -> Planes {
    let mut planes = [0; STEPS];
    for (step, plane) in planes.iter_mut().enumerate() {
        for (lane, row) in rows.into_iter().enumerate() {
            *plane |= u64::from(row >> (4 * step) & 15) << (4 * lane);
        }
    }
    planes
}

/// Of 32 bytes, the bits of each of eight runs: bit `c` is bit `run` of byte `c`.
#[inline(always)]
pub(super) fn bits_of_runs(bytes: &[u8; BLOCK]) -> [u32; 8] {
    let mut runs = [0; 8];
    for (group, eight) in bytes.as_chunks::<8>().0.iter().enumerate() {
        // Of a byte's bits `r`, a product gathers those of eight bytes in its top byte, the first
        // one lowest.
        let word = u64::from_le_bytes(*eight);
        for (run, bits) in runs.iter_mut().enumerate() {
            let ones = word >> run & 0x0101_0101_0101_0101;
            let gathered = ones.wrapping_mul(0x0102_0408_1020_4080) >> 56;
            *bits |= (gathered as u32) << (8 * group);
        }
    }
    runs
}

/// Weights of five bits: 32 columns of 16 rows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct FiveBits {
    /// The low four.
    pub(super) low: Nibbles,
    /// The fifth.
    pub(super) fifths: Planes,
}

impl FiveBits {
    /// Stores the same run of 16 rows, each from 32 fifth bits and 16 bytes of low bits as
    /// [`put_nibbles`] takes them.
    #[inline(always)]
    pub(super) fn put(&mut self, fifths: [&[u8; 4]; LANES], low: [&[u8; BLOCK / 2]; LANES]) {
        self.fifths = planes(fifths.map(|bits| u32::from_le_bytes(*bits)));
        for (lane, bytes) in low.into_iter().enumerate() {
            put_nibbles(&mut self.low, lane, bytes);
        }
    }

    /// The weights, 0 to 31.
    #[inline(always)]
    pub(super) fn weights<S: Simd>(&self, simd: S) -> [S::U8; STEPS] {
        let mut weights = nibbles(simd, &self.low);
        for i in 0..STEPS {
            weights[i] = simd.or_bit_plane(weights[i], self.fifths[i], 16);
        }
        weights
    }
}
