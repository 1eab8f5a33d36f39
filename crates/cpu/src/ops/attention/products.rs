//! The two matrix products of a tile (`Q K^T` and `P V`) as register tiles: up to six query rows
//! times some vectors of outputs.

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

/// Memory to ask the first cache for, so many bytes with each step.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    pub(super) address: *const u8,
    pub(super) bytes: usize,
}

impl Ahead {
    /// Nothing.
    pub(super) const NONE: Ahead = Ahead { address: std::ptr::null(), bytes: 0 };
}

/// A matrix of which row `first` is the first stored; each row's lanes start `column` after it.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a, T> {
    pub(super) values: &'a [T],
    pub(super) stride: usize,
    pub(super) column: usize,
    pub(super) first: usize,
    /// What will be wanted next, to be asked for while this is multiplied.
    pub(super) ahead: Ahead,
}

/// `R` rows of factors against `V` vectors of a matrix, over its rows `steps` in order:
/// `acc[r][v] = fma(factor(step, r), matrix[step][v], acc[r][v])`.
#[inline(always)]
#[allow(clippy::needless_range_loop, reason = "the same index in factors and sums")]
fn multiply<S: Simd, E: Stored, const R: usize, const V: usize>(
    simd: S,
    acc: &mut [[S::F32; V]; R],
    matrix: Matrix<'_, E>,
    column: usize,
    steps: Range<usize>,
    factor: impl Fn(usize, usize) -> E::Factor,
) {
    let (stride, column) = (matrix.stride, matrix.column + column);
    assert!(column + V * LANES <= stride, "columns of a register tile");
    let values = &matrix.values[(steps.start - matrix.first) * stride..(steps.end - matrix.first) * stride];
    for (row, step) in values.chunks_exact(stride).zip(steps) {
        let lanes = row[column..column + V * LANES].as_chunks::<LANES>().0;
        // A vector of K or V is loaded and widened once for all `R` rows; with one row (a decode)
        // this load bounds the loop, with six the multiply-adds do.
        let mut vectors = [E::load(simd, &lanes[0]); V];
        for v in 1..V {
            vectors[v] = E::load(simd, &lanes[v]);
        }
        // The next tile lies in another block, where the hardware's prefetcher does not look. A
        // share of it with each step: all at once would wait for memory.
        for byte in (0..matrix.ahead.bytes).step_by(64) {
            simd.prefetch(matrix.ahead.address.wrapping_add(step * matrix.ahead.bytes + byte));
        }
        for r in 0..R {
            let factor = E::splat(simd, factor(step, r));
            for v in 0..V {
                acc[r][v] = E::multiply_add(simd, acc[r][v], factor, vectors[v]);
            }
        }
    }
}

/// Vectors of some rows of a row-major matrix.
#[inline(always)]
fn load_rows<S: Simd, const R: usize, const V: usize>(
    simd: S,
    from: &[f32],
    stride: usize,
    column: usize,
) -> [[S::F32; V]; R] {
    let mut acc = [[simd.splat(0.0); V]; R];
    for r in 0..R {
        let lanes = from[r * stride + column..][..V * LANES].as_chunks::<LANES>().0;
        for v in 0..V {
            acc[r][v] = simd.load(&lanes[v]);
        }
    }
    acc
}

/// Puts vectors of some rows into a row-major matrix.
#[inline(always)]
fn store_rows<S: Simd, const R: usize, const V: usize>(
    simd: S,
    acc: &[[S::F32; V]; R],
    to: &mut [f32],
    stride: usize,
    column: usize,
) {
    for r in 0..R {
        let lanes = to[r * stride + column..][..V * LANES].as_chunks_mut::<LANES>().0;
        for v in 0..V {
            simd.store(acc[r][v], &mut lanes[v]);
        }
    }
}

/// Scores of `R` rows for `V` vectors of positions.
struct ScoreTile<'a, E: Stored, const N: usize, const R: usize, const V: usize> {
    factors: &'a [[E::Factor; N]],
    k: Matrix<'a, E>,
    steps: usize,
    column: usize,
    out: &'a mut [[f32; TILE]],
}

impl<E: Stored, const N: usize, const R: usize, const V: usize> Kernel for ScoreTile<'_, E, N, R, V> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let factors: &[[E::Factor; N]; R] = self.factors.first_chunk().expect("factors of every row");
        assert!(self.steps <= N, "elements of a head");
        let mut acc = [[simd.splat(0.0); V]; R];
        let steps = 0..self.steps;
        multiply::<S, E, R, V>(simd, &mut acc, self.k, self.column, steps, |step, r| factors[r][step]);
        store_rows(simd, &acc, self.out.as_flattened_mut(), TILE, self.column);
    }
}

/// Sums of `R` rows for `V` vectors of dims.
struct ValueTile<'a, E: Stored, const N: usize, const R: usize, const V: usize> {
    factors: &'a [[E::Factor; N]],
    v: Matrix<'a, E>,
    column: usize,
    steps: Range<usize>,
    /// Whether the sums start at zero instead of what is in `out`.
    fresh: bool,
    /// Rows, `v_dims` apart.
    out: &'a mut [f32],
    v_dims: usize,
}

impl<E: Stored, const N: usize, const R: usize, const V: usize> Kernel for ValueTile<'_, E, N, R, V> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let factors: &[[E::Factor; N]; R] = self.factors.first_chunk().expect("factors of every row");
        assert!(self.steps.end <= N, "steps of a tile");
        let mut acc = if self.fresh {
            [[simd.splat(0.0); V]; R]
        } else {
            load_rows(simd, self.out, self.v_dims, self.column)
        };
        multiply::<S, E, R, V>(simd, &mut acc, self.v, self.column, self.steps, |step, r| factors[r][step]);
        store_rows(simd, &acc, self.out, self.v_dims, self.column);
    }
}

/// Raw scores of up to [`ROWS`] rows: `scores[r][position] = sum over steps of factors[r][step] *
/// k[step][position]`, for the first `columns` positions at least.
#[inline(always)]
pub(super) fn scores<S: Simd, E: Stored, const N: usize>(
    simd: S,
    factors: &[[E::Factor; N]],
    k: Matrix<'_, E>,
    steps: usize,
    columns: usize,
    out: &mut [[f32; TILE]],
) {
    if S::WIDE {
        match columns.div_ceil(LANES) {
            0 | 1 => scores_of::<S, E, N, 1>(simd, factors, k, steps, 0, out),
            2 => scores_of::<S, E, N, 2>(simd, factors, k, steps, 0, out),
            _ => scores_of::<S, E, N, 4>(simd, factors, k, steps, 0, out),
        }
    } else {
        for column in (0..columns).step_by(LANES) {
            let ahead = if column == 0 { k.ahead } else { Ahead::NONE };
            scores_of::<S, E, N, 1>(simd, factors, Matrix { ahead, ..k }, steps, column, out);
        }
    }
}

#[inline(always)]
fn scores_of<S: Simd, E: Stored, const N: usize, const V: usize>(
    simd: S,
    factors: &[[E::Factor; N]],
    k: Matrix<'_, E>,
    steps: usize,
    column: usize,
    out: &mut [[f32; TILE]],
) {
    if S::SCALAR {
        for (factors, out) in factors.chunks(1).zip(out.chunks_mut(1)) {
            simd.outlined(ScoreTile::<E, N, 1, V> { factors, k, steps, column, out });
        }
        return;
    }
    match out.len() {
        1 => simd.outlined(ScoreTile::<E, N, 1, V> { factors, k, steps, column, out }),
        2 => simd.outlined(ScoreTile::<E, N, 2, V> { factors, k, steps, column, out }),
        3 => simd.outlined(ScoreTile::<E, N, 3, V> { factors, k, steps, column, out }),
        4 => simd.outlined(ScoreTile::<E, N, 4, V> { factors, k, steps, column, out }),
        5 => simd.outlined(ScoreTile::<E, N, 5, V> { factors, k, steps, column, out }),
        _ => simd.outlined(ScoreTile::<E, N, 6, V> { factors, k, steps, column, out }),
    }
}

/// Sums over positions of up to [`ROWS`] rows: `out[r][dim] += factors[r][step] * v[step][dim]`
/// over some steps in order, from zero if `fresh`.
pub(super) struct Values<'a, E: Stored, const N: usize> {
    pub(super) factors: &'a [[E::Factor; N]],
    pub(super) v: Matrix<'a, E>,
    pub(super) steps: Range<usize>,
    pub(super) fresh: bool,
    pub(super) out: &'a mut [f32],
    /// Dims, a multiple of the lanes, and the distance of rows of `out`.
    pub(super) v_dims: usize,
}

impl<E: Stored, const N: usize> Values<'_, E, N> {
    /// In register tiles of as many dims as the registers hold.
    #[inline(always)]
    pub(super) fn add<S: Simd>(mut self, simd: S) {
        let mut column = 0;
        while column < self.v_dims {
            column += LANES * self.some_columns(simd, (self.v_dims - column) / LANES, column);
            self.v.ahead = Ahead::NONE;
        }
    }

    /// As many of the `left` vectors as a register tile takes; how many.
    #[inline(always)]
    fn some_columns<S: Simd>(&mut self, simd: S, left: usize, column: usize) -> usize {
        // Four vectors of six rows, their operands and a factor are 29 registers.
        if S::WIDE {
            if left >= 4 {
                self.columns::<S, 4>(simd, column);
                return 4;
            }
            if left >= 2 {
                self.columns::<S, 2>(simd, column);
                return 2;
            }
        }
        self.columns::<S, 1>(simd, column);
        1
    }

    #[inline(always)]
    fn columns<S: Simd, const V: usize>(&mut self, simd: S, column: usize) {
        if S::SCALAR {
            for row in 0..self.factors.len() {
                let (factors, out) = (&self.factors[row..], &mut self.out[row * self.v_dims..]);
                let (v, steps, fresh, v_dims) = (self.v, self.steps.clone(), self.fresh, self.v_dims);
                simd.outlined(ValueTile::<E, N, 1, V> { factors, v, column, steps, fresh, out, v_dims });
            }
            return;
        }
        match self.factors.len() {
            1 => simd.outlined(self.tile::<1, V>(column)),
            2 => simd.outlined(self.tile::<2, V>(column)),
            3 => simd.outlined(self.tile::<3, V>(column)),
            4 => simd.outlined(self.tile::<4, V>(column)),
            5 => simd.outlined(self.tile::<5, V>(column)),
            _ => simd.outlined(self.tile::<6, V>(column)),
        }
    }

    #[inline(always)]
    fn tile<const R: usize, const V: usize>(&mut self, column: usize) -> ValueTile<'_, E, N, R, V> {
        ValueTile {
            factors: self.factors,
            v: self.v,
            column,
            steps: self.steps.clone(),
            fresh: self.fresh,
            out: self.out,
            v_dims: self.v_dims,
        }
    }
}

/// The register tiles of `n` rows: as few as can be, of nearly equal size.
#[inline(always)]
pub(super) fn blocks(n: usize) -> impl Iterator<Item = Range<usize>> {
    let tiles = n.div_ceil(ROWS);
    (0..tiles).map(move |tile| n * tile / tiles..n * (tile + 1) / tiles)
}
