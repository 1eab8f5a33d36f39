//! Online softmax: running maxima, sums and accumulators, and the one function that folds them.

use std::ops::Range;

use super::scratch::Store;
use crate::arch::{LANES, Simd};
use crate::math::{exp_of_nonpositive, load_padded, store_part};

/// States of some rows, to be changed.
pub(super) struct StateMut<'a> {
    pub(super) max: &'a mut [f32],
    pub(super) sum: &'a mut [f32],
    /// [row][v_dims].
    pub(super) acc: &'a mut [f32],
}

/// States of some rows.
#[derive(Clone, Copy)]
pub(super) struct StateRef<'a> {
    pub(super) max: &'a [f32],
    pub(super) sum: &'a [f32],
    /// [row][v_dims].
    pub(super) acc: &'a [f32],
}

impl Store {
    /// To be changed.
    pub(super) fn state_mut(&mut self) -> StateMut<'_> {
        StateMut { max: self.max.get_mut(), sum: self.sum.get_mut(), acc: self.acc.get_mut() }
    }

    /// To be read.
    pub(super) fn state(&self) -> StateRef<'_> {
        StateRef { max: self.max.get(), sum: self.sum.get(), acc: self.acc.get() }
    }
}

impl StateMut<'_> {
    /// The state before the first fold: maximum -inf, sum +0, accumulators +0.
    pub(super) fn clear(&mut self, rows: usize, v_dims: usize) {
        self.max[..rows].fill(f32::NEG_INFINITY);
        self.sum[..rows].fill(0.0);
        self.acc[..rows * v_dims].fill(0.0);
    }
}

/// Folds what comes into what is there, for the rows of a range. With `m' = max(m, m_c)`, `a =
/// exp(m - m')` and `b = exp(m_c - m')`: `l = fma(l, a, l_c * b)` and `acc = fma(acc, a, acc_c *
/// b)`. Each row that comes has seen a position.
#[inline(always)]
pub(super) fn fold<S: Simd>(
    simd: S,
    into: &mut StateMut<'_>,
    from: StateRef<'_>,
    rows: Range<usize>,
    v_dims: usize,
    factors: [&mut [f32]; 2],
) {
    let [there, coming] = factors;
    fold_sums(simd, into, from, rows.clone(), there, coming);
    for row in rows {
        let (a, b) = (simd.splat(there[row]), simd.splat(coming[row]));
        let columns = row * v_dims..(row + 1) * v_dims;
        let acc = into.acc[columns.clone()].as_chunks_mut::<LANES>().0;
        let add = from.acc[columns].as_chunks::<LANES>().0;
        for (acc, add) in acc.iter_mut().zip(add) {
            let sum = simd.fma(simd.load(acc), a, simd.mul(simd.load(add), b));
            simd.store(sum, acc);
        }
    }
}

/// Maxima and sums of [`fold`], and its factors. Lanes are rows.
#[inline(always)]
fn fold_sums<S: Simd>(
    simd: S,
    into: &mut StateMut<'_>,
    from: StateRef<'_>,
    rows: Range<usize>,
    there: &mut [f32],
    coming: &mut [f32],
) {
    for start in rows.clone().step_by(LANES) {
        let lanes = start..rows.end.min(start + LANES);
        let old = load_padded(simd, &into.max[lanes.clone()]);
        let new = load_padded(simd, &from.max[lanes.clone()]);
        let max = simd.max(old, new);
        let a = exp_of_nonpositive(simd, simd.sub(old, max));
        let b = exp_of_nonpositive(simd, simd.sub(new, max));
        let add = simd.mul(load_padded(simd, &from.sum[lanes.clone()]), b);
        let sum = simd.fma(load_padded(simd, &into.sum[lanes.clone()]), a, add);
        store_part(simd, max, &mut into.max[lanes.clone()]);
        store_part(simd, sum, &mut into.sum[lanes.clone()]);
        store_part(simd, a, &mut there[lanes.clone()]);
        store_part(simd, b, &mut coming[lanes]);
    }
}

/// Folds a sink: a position whose score is the sink's logit and whose value is zero, so `acc =
/// fma(acc, a, +0)`.
#[inline(always)]
pub(super) fn fold_sink<S: Simd>(simd: S, state: &mut StateMut<'_>, row: usize, v_dims: usize, sink: f32) {
    let (old, new) = (simd.splat(state.max[row]), simd.splat(sink));
    let max = simd.max(old, new);
    let a = exp_of_nonpositive(simd, simd.sub(old, max));
    let b = exp_of_nonpositive(simd, simd.sub(new, max));
    let sum = simd.fma(simd.splat(state.sum[row]), a, b);
    store_part(simd, max, &mut state.max[row..row + 1]);
    store_part(simd, sum, &mut state.sum[row..row + 1]);
    for acc in state.acc[row * v_dims..(row + 1) * v_dims].as_chunks_mut::<LANES>().0 {
        simd.store(simd.fma(simd.load(acc), a, simd.splat(0.0)), acc);
    }
}
