//! Loads and stores of the last part of a row whose length is no multiple of sixteen.

use crate::arch::{LANES, Simd};

/// Up to sixteen values from the start of a slice, the missing ones zero.
#[inline(always)]
pub(crate) fn load_padded<S: Simd>(simd: S, from: &[f32]) -> S::F32 {
    match from.first_chunk::<LANES>() {
        Some(lanes) => simd.load(lanes),
        None => {
            let mut lanes = [0.0; LANES];
            lanes[..from.len()].copy_from_slice(from);
            simd.load(&lanes)
        }
    }
}

/// As many lanes as the slice has room for, up to sixteen.
#[inline(always)]
pub(crate) fn store_part<S: Simd>(simd: S, value: S::F32, to: &mut [f32]) {
    match to.first_chunk_mut::<LANES>() {
        Some(lanes) => simd.store(value, lanes),
        None => {
            let mut lanes = [0.0; LANES];
            simd.store(value, &mut lanes);
            let count = to.len();
            to.copy_from_slice(&lanes[..count]);
        }
    }
}
