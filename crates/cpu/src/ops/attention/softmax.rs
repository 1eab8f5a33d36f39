//! Softmax of a tile: from scores to unnormalised probabilities, their maximum and sum.

use std::ops::Range;

use super::TILE;
use super::scratch::Seen;
use crate::arch::{Kernel, LANES, Simd};
use crate::math::{exp_of_nonpositive, tanh};

/// Vectors of a tile's row.
const VECTORS: usize = TILE / LANES;

/// Where each lane of a tile lies in it.
const INDEX: [f32; TILE] = {
    let mut index = [0.0; TILE];
    let mut lane = 0;
    while lane < TILE {
        index[lane] = lane as f32;
        lane += 1;
    }
    index
};

/// What is done to a score before the softmax.
#[derive(Clone, Copy)]
pub(super) struct Scores {
    /// Factor.
    pub(super) scale: f32,
    /// Bound of the soft cap.
    pub(super) cap: Option<f32>,
}

/// The rows of a tile.
pub(super) struct Softmax<'a> {
    pub(super) how: Scores,
    /// What each row sees.
    pub(super) seen: &'a [Seen],
    /// Raw scores, then probabilities.
    pub(super) scores: &'a mut [[f32; TILE]],
    /// Where rounded probabilities go.
    pub(super) pairs: Option<&'a mut [[u32; TILE / 2]]>,
    /// The rows' maxima.
    pub(super) max: &'a mut [f32],
    /// The rows' sums.
    pub(super) sum: &'a mut [f32],
}

impl Kernel for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, simd: S) {
        let rows = self.scores.iter_mut().zip(self.seen).zip(self.max.iter_mut().zip(self.sum));
        for (index, ((scores, seen), (max, sum))) in rows.enumerate() {
            let pairs = self.pairs.as_mut().map(|pairs| &mut pairs[index]);
            (*max, *sum) = softmax_row(simd, self.how, scores, seen.range(), pairs);
        }
    }
}

/// Replaces one row of raw scores by probabilities relative to the tile's maximum, hidden ones +0;
/// with `pairs` rounds them to bf16 and stores them there too. Returns (maximum, sum).
#[inline(always)]
fn softmax_row<S: Simd>(
    simd: S,
    scores: Scores,
    row: &mut [f32; TILE],
    seen: Range<usize>,
    pairs: Option<&mut [u32; TILE / 2]>,
) -> (f32, f32) {
    let lanes = row.as_chunks_mut::<LANES>().0;
    let mut values = [simd.splat(0.0); VECTORS];
    for (value, lanes) in values.iter_mut().zip(lanes.iter()) {
        *value = simd.mul(simd.load(lanes), simd.splat(scores.scale));
    }
    if let Some(cap) = scores.cap {
        let cap = simd.splat(cap);
        for value in &mut values {
            *value = simd.mul(cap, tanh(simd, simd.div(*value, cap)));
        }
    }
    if seen != (0..TILE) {
        hide(simd, &mut values, seen);
    }
    // All 64 scores stay in four vectors from here to the sum.
    let max = simd.max(simd.max(values[0], values[1]), simd.max(values[2], values[3]));
    let max = simd.reduce_max(max);
    for value in &mut values {
        *value = exp_of_nonpositive(simd, simd.sub(*value, simd.splat(max)));
    }
    match pairs {
        None => {
            for (value, lanes) in values.iter().zip(lanes) {
                simd.store(*value, lanes);
            }
        }
        Some(pairs) => round(simd, &mut values, pairs),
    }
    // The fixed tree of the contract: four vectors, then the lanes.
    let sum = simd.add(simd.add(values[0], values[1]), simd.add(values[2], values[3]));
    (max, simd.reduce_add(sum))
}

/// Scores outside of a range become -inf, whatever they were.
#[inline(always)]
fn hide<S: Simd>(simd: S, values: &mut [S::F32; VECTORS], seen: Range<usize>) {
    let hidden = simd.splat(f32::NEG_INFINITY);
    let (start, end) = (simd.splat(seen.start as f32), simd.splat(seen.end as f32));
    for (value, index) in values.iter_mut().zip(INDEX.as_chunks::<LANES>().0) {
        let index = simd.load(index);
        let before_end = simd.select_gt(end, index, *value, hidden);
        *value = simd.select_gt(start, index, hidden, before_end);
    }
}

/// Rounds to bf16: the values themselves, and the pairs of neighbours.
#[inline(always)]
fn round<S: Simd>(simd: S, values: &mut [S::F32; VECTORS], pairs: &mut [u32; TILE / 2]) {
    for (value, words) in values.iter_mut().zip(pairs.as_chunks_mut::<{ LANES / 2 }>().0) {
        simd.store_bf16(*value, words);
        *value = simd.round_bf16(*value);
    }
}
