//! The two products of a tile as register tiles: some query rows times some vectors of outputs.

use std::ops::Range;

use super::TILE;
use crate::arch::{Kernel, LANES, Simd};

/// Most query rows of a register tile.
pub(super) const ROWS: usize = 6;

/// Elements as they are stored, one for each lane: f32, f16 (`u16`) or a pair of bf16 (`u32`).
pub(super) trait Stored: Copy {
    /// Sixteen of them, ready to multiply.
    type Vector<S: Simd>: Copy;
    /// What multiplies them: one number, or a pair of bf16.
    type Factor: Copy;

    fn load<S: Simd>(simd: S, from: &[Self; LANES]) -> Self::Vector<S>;
    fn splat<S: Simd>(simd: S, factor: Self::Factor) -> Self::Vector<S>;
    fn multiply_add<S: Simd>(simd: S, acc: S::F32, a: Self::Vector<S>, b: Self::Vector<S>) -> S::F32;
}

impl Stored for f32 {
    type Vector<S: Simd> = S::F32;
    type Factor = f32;

    #[inline(always)]
    fn load<S: Simd>(simd: S, from: &[f32; LANES]) -> S::F32 {
        simd.load(from)
    }

    #[inline(always)]
    fn splat<S: Simd>(simd: S, factor: f32) -> S::F32 {
        simd.splat(factor)
    }

    #[inline(always)]
    fn multiply_add<S: Simd>(simd: S, acc: S::F32, a: S::F32, b: S::F32) -> S::F32 {
        simd.fma(a, b, acc)
    }
}

impl Stored for u16 {
    type Vector<S: Simd> = S::F32;
    type Factor = f32;

    #[inline(always)]
    fn load<S: Simd>(simd: S, from: &[u16; LANES]) -> S::F32 {
        simd.load_f16(from)
    }

    #[inline(always)]
    fn splat<S: Simd>(simd: S, factor: f32) -> S::F32 {
        simd.splat(factor)
    }

    #[inline(always)]
    fn multiply_add<S: Simd>(simd: S, acc: S::F32, a: S::F32, b: S::F32) -> S::F32 {
        simd.fma(a, b, acc)
    }
}

impl Stored for u32 {
    type Vector<S: Simd> = S::I32;
    type Factor = u32;

    #[inline(always)]
    fn load<S: Simd>(simd: S, from: &[u32; LANES]) -> S::I32 {
        simd.load_pairs(from)
    }

    #[inline(always)]
    fn splat<S: Simd>(simd: S, factor: u32) -> S::I32 {
        simd.splat_i32(factor as i32)
    }

    #[inline(always)]
    fn multiply_add<S: Simd>(simd: S, acc: S::F32, a: S::I32, b: S::I32) -> S::F32 {
        simd.dot_bf16(acc, a, b)
    }
}

/// A matrix whose row `i` starts at `i * stride`.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a, T> {
    pub(super) values: &'a [T],
    pub(super) stride: usize,
}

/// `R` rows of factors against `V` vectors of a matrix, over its rows `steps` in order, added to what is in `out`:
/// `out[r][v] = out[r][v] + factors[r][step] * matrix[step][v]`, from zero with `FRESH`.
struct RegisterTile<'a, E: Stored, const R: usize, const V: usize, const FRESH: bool> {
    /// Rows, `factor_stride` apart.
    factors: &'a [E::Factor],
    factor_stride: usize,
    matrix: Matrix<'a, E>,
    /// First column of the matrix and of `out`.
    column: usize,
    steps: Range<usize>,
    /// Rows, `out_stride` apart.
    out: &'a mut [f32],
    out_stride: usize,
}

impl<E: Stored, const R: usize, const V: usize, const FRESH: bool> Kernel for RegisterTile<'_, E, R, V, FRESH> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let n = self.steps.len();
        let mut rows: [&[E::Factor]; R] = [&[]; R];
        for (r, row) in rows.iter_mut().enumerate() {
            let start = r * self.factor_stride + self.steps.start;
            *row = &self.factors[start..start + n];
        }
        let mut acc = [[simd.splat(0.0); V]; R];
        if !FRESH {
            for r in 0..R {
                let lanes = self.out[r * self.out_stride + self.column..][..V * LANES].as_chunks::<LANES>().0;
                for v in 0..V {
                    acc[r][v] = simd.load(&lanes[v]);
                }
            }
        }
        for step in 0..n {
            let start = (self.steps.start + step) * self.matrix.stride + self.column;
            let lanes = self.matrix.values[start..start + V * LANES].as_chunks::<LANES>().0;
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
        for r in 0..R {
            let lanes = self.out[r * self.out_stride + self.column..][..V * LANES].as_chunks_mut::<LANES>().0;
            for v in 0..V {
                simd.store(acc[r][v], &mut lanes[v]);
            }
        }
    }
}

/// Rows of factors against all columns of a matrix.
struct Product<'a, E: Stored> {
    factors: &'a [E::Factor],
    factor_stride: usize,
    matrix: Matrix<'a, E>,
    steps: Range<usize>,
    out: &'a mut [f32],
    /// Columns, and the distance of rows of `out`.
    width: usize,
}

impl<E: Stored> Product<'_, E> {
    /// Up to [`ROWS`] rows in register tiles of as many columns as the registers hold.
    #[inline(always)]
    fn run<S: Simd, const FRESH: bool>(mut self, simd: S, rows: usize) {
        let mut column = 0;
        while column < self.width {
            let left = (self.width - column) / LANES;
            if is_wide::<S>() && left >= 4 {
                self.columns::<S, 4, FRESH>(simd, rows, column);
                column += 4 * LANES;
            } else if is_wide::<S>() && left >= 2 {
                self.columns::<S, 2, FRESH>(simd, rows, column);
                column += 2 * LANES;
            } else {
                self.columns::<S, 1, FRESH>(simd, rows, column);
                column += LANES;
            }
        }
    }

    #[inline(always)]
    fn columns<S: Simd, const V: usize, const FRESH: bool>(&mut self, simd: S, rows: usize, column: usize) {
        match rows {
            1 => simd.outlined(self.tile::<1, V, FRESH>(column)),
            2 => simd.outlined(self.tile::<2, V, FRESH>(column)),
            3 => simd.outlined(self.tile::<3, V, FRESH>(column)),
            4 => simd.outlined(self.tile::<4, V, FRESH>(column)),
            5 => simd.outlined(self.tile::<5, V, FRESH>(column)),
            _ => simd.outlined(self.tile::<6, V, FRESH>(column)),
        }
    }

    #[inline(always)]
    fn tile<const R: usize, const V: usize, const FRESH: bool>(
        &mut self,
        column: usize,
    ) -> RegisterTile<'_, E, R, V, FRESH> {
        RegisterTile {
            factors: self.factors,
            factor_stride: self.factor_stride,
            matrix: self.matrix,
            column,
            steps: self.steps.clone(),
            out: self.out,
            out_stride: self.width,
        }
    }
}

/// Whether a register tile of four vectors a row fits.
#[inline(always)]
const fn is_wide<S: Simd>() -> bool {
    S::REGISTERS >= 4 * ROWS + 5
}

/// Raw scores of a tile: `scores[r][position] = sum over steps of factors[r][step] * k[step][position]`, for neighbouring rows
/// of `factors` and `scores`.
#[inline(always)]
pub(super) fn scores<S: Simd, E: Stored>(
    simd: S,
    factors: &[E::Factor],
    steps: usize,
    k: Matrix<'_, E>,
    scores: &mut [[f32; TILE]],
) {
    let mut first = 0;
    for rows in blocks(scores.len()) {
        let product = Product {
            factors: &factors[first * steps..(first + rows) * steps],
            factor_stride: steps,
            matrix: k,
            steps: 0..steps,
            out: scores[first..first + rows].as_flattened_mut(),
            width: TILE,
        };
        product.run::<S, true>(simd, rows);
        first += rows;
    }
}

/// Adds to the accumulators of up to [`ROWS`] rows, whose factors lie `stride` apart: `acc[r][dim] += factors[r][step] *
/// v[step][dim]` over some steps in order.
#[inline(always)]
pub(super) fn accumulate<S: Simd, E: Stored>(
    simd: S,
    factors: &[E::Factor],
    stride: usize,
    v: Matrix<'_, E>,
    steps: Range<usize>,
    acc: &mut [f32],
    width: usize,
) {
    let rows = factors.len() / stride;
    Product { factors, factor_stride: stride, matrix: v, steps, out: acc, width }.run::<S, false>(simd, rows);
}

/// How many rows each register tile of `n` takes: as few tiles as can be, of nearly equal size.
#[inline(always)]
pub(super) fn blocks(n: usize) -> impl Iterator<Item = usize> {
    let tiles = n.div_ceil(ROWS);
    (0..tiles).map(move |tile| n * (tile + 1) / tiles - n * tile / tiles)
}
