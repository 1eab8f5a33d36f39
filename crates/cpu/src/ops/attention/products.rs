//! The two products of a tile as register tiles: some query rows times some vectors of outputs.

use std::ops::Range;

use super::TILE;
use crate::arch::{LANES, Simd};

/// Most query rows of a register tile.
pub(super) const ROWS: usize = 6;

/// Elements as they are stored, one for each lane: f32, f16 (`u16`) or a pair of bf16 (`u32`).
pub(super) trait Stored<S: Simd>: Copy {
    /// Sixteen of them, ready to multiply.
    type Vector: Copy;
    /// What multiplies them: one number, or a pair of bf16.
    type Factor: Copy;

    fn load(simd: S, from: &[Self; LANES]) -> Self::Vector;
    fn splat(simd: S, factor: Self::Factor) -> Self::Vector;
    fn multiply_add(simd: S, acc: S::F32, a: Self::Vector, b: Self::Vector) -> S::F32;
}

impl<S: Simd> Stored<S> for f32 {
    type Vector = S::F32;
    type Factor = f32;

    #[inline(always)]
    fn load(simd: S, from: &[f32; LANES]) -> S::F32 {
        simd.load(from)
    }

    #[inline(always)]
    fn splat(simd: S, factor: f32) -> S::F32 {
        simd.splat(factor)
    }

    #[inline(always)]
    fn multiply_add(simd: S, acc: S::F32, a: S::F32, b: S::F32) -> S::F32 {
        simd.fma(a, b, acc)
    }
}

impl<S: Simd> Stored<S> for u16 {
    type Vector = S::F32;
    type Factor = f32;

    #[inline(always)]
    fn load(simd: S, from: &[u16; LANES]) -> S::F32 {
        simd.load_f16(from)
    }

    #[inline(always)]
    fn splat(simd: S, factor: f32) -> S::F32 {
        simd.splat(factor)
    }

    #[inline(always)]
    fn multiply_add(simd: S, acc: S::F32, a: S::F32, b: S::F32) -> S::F32 {
        simd.fma(a, b, acc)
    }
}

impl<S: Simd> Stored<S> for u32 {
    type Vector = S::I32;
    type Factor = u32;

    #[inline(always)]
    fn load(simd: S, from: &[u32; LANES]) -> S::I32 {
        simd.load_pairs(from)
    }

    #[inline(always)]
    fn splat(simd: S, factor: u32) -> S::I32 {
        simd.splat_i32(factor as i32)
    }

    #[inline(always)]
    fn multiply_add(simd: S, acc: S::F32, a: S::I32, b: S::I32) -> S::F32 {
        simd.dot_bf16(acc, a, b)
    }
}

/// A matrix whose row `i` starts at `i * stride`.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a, T> {
    pub(super) values: &'a [T],
    pub(super) stride: usize,
}

/// `R` rows of factors against `V` vectors of a matrix, over its rows `steps` in order:
/// `acc[r][v] = acc[r][v] + factors[r][step] * matrix[step][v]`.
#[inline(always)]
fn register_tile<S: Simd, E: Stored<S>, const R: usize, const V: usize>(
    simd: S,
    acc: &mut [[S::F32; V]; R],
    factors: [&[E::Factor]; R],
    matrix: Matrix<'_, E>,
    column: usize,
    steps: Range<usize>,
) {
    let n = steps.len();
    let mut rows = factors;
    for row in &mut rows {
        *row = &row[steps.start..steps.end][..n];
    }
    for step in 0..n {
        let start = (steps.start + step) * matrix.stride + column;
        let lanes = matrix.values[start..start + V * LANES].as_chunks::<LANES>().0;
        let mut vectors = [E::load(simd, &lanes[0]); V];
        for v in 1..V {
            vectors[v] = E::load(simd, &lanes[v]);
        }
        for r in 0..R {
            let factor = E::splat(simd, rows[r][step]);
            for v in 0..V {
                acc[r][v] = E::multiply_add(simd, acc[r][v], factor, vectors[v]);
            }
        }
    }
}

/// Chooses the register tile for up to [`ROWS`] rows.
macro_rules! for_rows {
    ($rows:expr, $function:ident, $v:literal, ($($argument:expr),*)) => {
        match $rows {
            1 => $function::<S, E, 1, $v>($($argument),*),
            2 => $function::<S, E, 2, $v>($($argument),*),
            3 => $function::<S, E, 3, $v>($($argument),*),
            4 => $function::<S, E, 4, $v>($($argument),*),
            5 => $function::<S, E, 5, $v>($($argument),*),
            _ => $function::<S, E, 6, $v>($($argument),*),
        }
    };
}

/// Whether a register tile of four vectors a row fits.
#[inline(always)]
const fn is_wide<S: Simd>() -> bool {
    S::REGISTERS >= 4 * ROWS + 5
}

/// Raw scores of a tile: `scores[r][position] = sum over steps of factors[r][step] * k[step][position]`, for neighbouring rows
/// of `factors` and `scores`.
#[inline(always)]
pub(super) fn scores<S: Simd, E: Stored<S>>(
    simd: S,
    factors: &[E::Factor],
    steps: usize,
    k: Matrix<'_, E>,
    scores: &mut [[f32; TILE]],
) {
    let mut first = 0;
    for rows in blocks(scores.len()) {
        let factors = &factors[first * steps..(first + rows) * steps];
        let scores = &mut scores[first..first + rows];
        if is_wide::<S>() {
            for_rows!(rows, scores_of, 4, (simd, factors, steps, k, 0, scores));
        } else {
            for column in (0..TILE).step_by(LANES) {
                for_rows!(rows, scores_of, 1, (simd, factors, steps, k, column, scores));
            }
        }
        first += rows;
    }
}

#[inline(always)]
fn scores_of<S: Simd, E: Stored<S>, const R: usize, const V: usize>(
    simd: S,
    factors: &[E::Factor],
    steps: usize,
    k: Matrix<'_, E>,
    column: usize,
    scores: &mut [[f32; TILE]],
) {
    let mut acc = [[simd.splat(0.0); V]; R];
    let mut rows: [&[E::Factor]; R] = [&[]; R];
    for (row, factors) in rows.iter_mut().zip(factors.chunks_exact(steps)) {
        *row = factors;
    }
    register_tile::<S, E, R, V>(simd, &mut acc, rows, k, column, 0..steps);
    for (row, acc) in scores.iter_mut().zip(&acc) {
        let lanes = row[column..column + V * LANES].as_chunks_mut::<LANES>().0;
        for v in 0..V {
            simd.store(acc[v], &mut lanes[v]);
        }
    }
}

/// Adds to the accumulators of up to [`ROWS`] rows, whose factors lie `stride` apart: `acc[r][dim] += factors[r][step] * v[step][dim]` over some steps in order.
#[inline(always)]
pub(super) fn accumulate<S: Simd, E: Stored<S>>(
    simd: S,
    factors: &[E::Factor],
    stride: usize,
    v: Matrix<'_, E>,
    steps: Range<usize>,
    acc: &mut [f32],
    width: usize,
) {
    let rows = factors.len() / stride;
    let mut column = 0;
    while column < width {
        let left = (width - column) / LANES;
        let steps = steps.clone();
        if is_wide::<S>() && left >= 4 {
            for_rows!(rows, accumulate_of, 4, (simd, factors, stride, v, column, steps, acc, width));
            column += 4 * LANES;
        } else if is_wide::<S>() && left >= 2 {
            for_rows!(rows, accumulate_of, 2, (simd, factors, stride, v, column, steps, acc, width));
            column += 2 * LANES;
        } else {
            for_rows!(rows, accumulate_of, 1, (simd, factors, stride, v, column, steps, acc, width));
            column += LANES;
        }
    }
}

#[inline(always)]
fn accumulate_of<S: Simd, E: Stored<S>, const R: usize, const V: usize>(
    simd: S,
    factors: &[E::Factor],
    stride: usize,
    v: Matrix<'_, E>,
    column: usize,
    steps: Range<usize>,
    acc: &mut [f32],
    width: usize,
) {
    let mut rows: [&[E::Factor]; R] = [&[]; R];
    for (row, factors) in rows.iter_mut().zip(factors.chunks_exact(stride)) {
        *row = factors;
    }
    let mut sums = [[simd.splat(0.0); V]; R];
    for r in 0..R {
        let lanes = acc[r * width + column..][..V * LANES].as_chunks::<LANES>().0;
        for v in 0..V {
            sums[r][v] = simd.load(&lanes[v]);
        }
    }
    register_tile::<S, E, R, V>(simd, &mut sums, rows, v, column, steps);
    for r in 0..R {
        let lanes = acc[r * width + column..][..V * LANES].as_chunks_mut::<LANES>().0;
        for v in 0..V {
            simd.store(sums[r][v], &mut lanes[v]);
        }
    }
}

/// How many rows each register tile of `n` takes: as few tiles as can be, of nearly equal size.
#[inline(always)]
pub(super) fn blocks(n: usize) -> impl Iterator<Item = usize> {
    let tiles = n.div_ceil(ROWS);
    (0..tiles).map(move |tile| n * (tile + 1) / tiles - n * tile / tiles)
}
