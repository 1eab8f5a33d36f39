//! Fifth bits, kept apart from the nibbles.

use super::format::STEPS;
use crate::arch::{LANES, Simd};

/// Plane `i` belongs to vector `i` of the weights: its bit `b` is the fifth bit of byte `b`.
pub(super) type Planes = [u64; STEPS];

/// Packs the fifth bits of 16 rows, of which bit `c` belongs to column `c`: nibble `i` of row `l` becomes nibble `l` of plane `i`.
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

/// Weights with their fifth bits.
#[inline(always)]
pub(super) fn with_planes<S: Simd>(simd: S, mut weights: [S::U8; STEPS], planes: &Planes) -> [S::U8; STEPS] {
    for i in 0..STEPS {
        weights[i] = simd.or_bit_plane(weights[i], planes[i], 16);
    }
    weights
}
