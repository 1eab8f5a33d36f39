//! F32, F16 and BF16 weights: one fused multiply-add for each column, in order.

use std::marker::PhantomData;
use std::ops::Range;

use super::{AHEAD, Job, LINE, tokens_in_cache};
use crate::arch::{self, Simd};
use crate::pack::Plain;
use crate::threads::Rows;

/// Columns between two checks of bounds.
const COLUMNS: usize = 4;

/// All tokens of a job.
pub(super) struct Kernel<'a, P> {
    job: Job<'a, Rows<'a>>,
    format: PhantomData<P>,
}

impl<'a, P: Plain> Kernel<'a, P> {
    pub(super) fn new(job: Job<'a, Rows<'a>>) -> Self {
        Kernel { job, format: PhantomData }
    }

    /// Some tokens with `N` of them at a time and all panels, `M` at a time.
    #[inline(always)]
    fn tokens<S: Simd, const M: usize, const N: usize>(&self, simd: S, panels: Range<usize>, token: usize) {
        let mut panel = panels.start;
        while panel + M <= panels.end {
            self.tile::<S, M, N>(simd, panel, token);
            panel += M;
        }
        for panel in panel..panels.end {
            self.tile::<S, 1, N>(simd, panel, token);
        }
    }

    /// `M` panels and `N` tokens with their sums in registers.
    #[inline(always)]
    fn tile<S: Simd, const M: usize, const N: usize>(&self, simd: S, panel: usize, token: usize) {
        let mut weights: [&[P::Column]; M] = [&[]; M];
        for m in 0..M {
            weights[m] = self.job.matrix.panel(panel + m);
        }
        let mut x: [&[f32]; N] = [&[]; N];
        for n in 0..N {
            x[n] = self.job.input.row(token + n);
        }
        let mut sums = [[simd.splat(0.0); N]; M];
        let columns = self.job.matrix.columns();
        let mut column = 0;
        while column + COLUMNS <= columns {
            if N == 1 {
                for m in 0..M {
                    prefetch(simd, &weights[m][column..column + COLUMNS]);
                }
            }
            step::<S, P, M, N, COLUMNS>(simd, &weights, &x, column, &mut sums);
            column += COLUMNS;
        }
        while column < columns {
            step::<S, P, M, N, 1>(simd, &weights, &x, column, &mut sums);
            column += 1;
        }
        let outputs = self.job.target.of(panel..panel + M);
        for n in 0..N {
            let mut of_token = [sums[0][n]; M];
            for m in 1..M {
                of_token[m] = sums[m][n];
            }
            outputs.write(simd, token + n, &of_token);
        }
    }
}

/// Asks for the memory that lies [`AHEAD`] bytes after some weights.
#[inline(always)]
fn prefetch<S: Simd, T>(simd: S, weights: &[T]) {
    let start = weights.as_ptr().cast::<u8>().wrapping_add(AHEAD);
    for line in 0..size_of_val(weights).div_ceil(LINE) {
        simd.prefetch(start.wrapping_add(line * LINE));
    }
}

/// `C` columns from `column` on.
#[inline(always)]
fn step<S: Simd, P: Plain, const M: usize, const N: usize, const C: usize>(
    simd: S,
    weights: &[&[P::Column]; M],
    x: &[&[f32]; N],
    column: usize,
    sums: &mut [[S::F32; N]; M],
) {
    let mut values: [&[f32; C]; N] = [&[0.0; C]; N];
    for n in 0..N {
        values[n] = x[n][column..].first_chunk().expect("a whole step");
    }
    for c in 0..C {
        for m in 0..M {
            let weight = P::load(simd, &weights[m][column..column + C][c]);
            for n in 0..N {
                sums[m][n] = simd.fma(weight, simd.splat(values[n][c]), sums[m][n]);
            }
        }
    }
}

impl<P: Plain> arch::Kernel for Kernel<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let tokens = self.job.tokens.clone();
        let block = tokens_in_cache(self.job.matrix.columns() * size_of::<f32>()).max(8);
        let mut start = tokens.start;
        while start < tokens.end {
            let end = tokens.end.min(start + block);
            // A few panels at a time stay in the second-level cache for all tokens of the block.
            let mut panel = self.job.panels.start;
            while panel < self.job.panels.end {
                let panels = panel..self.job.panels.end.min(panel + 4);
                let mut token = start;
                while token < end {
                    token += self.some(simd, panels.clone(), token, end - token);
                }
                panel = panels.end;
            }
            start = end;
        }
    }
}

impl<P: Plain> Kernel<'_, P> {
    /// The next tokens, as many as the registers take; how many.
    #[inline(always)]
    fn some<S: Simd>(&self, simd: S, panels: Range<usize>, token: usize, left: usize) -> usize {
        if S::SCALAR {
            self.tokens::<S, 1, 1>(simd, panels, token);
            return 1;
        }
        if S::WIDE {
            if left >= 8 {
                self.tokens::<S, 2, 8>(simd, panels, token);
                return 8;
            }
            if left >= 4 {
                self.tokens::<S, 4, 4>(simd, panels, token);
                return 4;
            }
        } else if left >= 4 {
            self.tokens::<S, 1, 4>(simd, panels, token);
            return 4;
        }
        self.tokens::<S, 4, 1>(simd, panels, token);
        1
    }
}
