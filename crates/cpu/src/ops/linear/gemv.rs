//! GEMV for decode, and GEMM for up to [`TOKENS`] tokens: each weight is loaded from memory once,
//! unpacked in registers, and multiplied with every token of a tile.
//!
//! Memory bounds it: a decode reads every weight once and does two operations for each. So the
//! weights stream through without a detour by the first-level cache, and each run asks for the
//! memory that lies [`AHEAD`] bytes after it.

use std::marker::PhantomData;
use std::ops::Range;

use super::tile::{Activations, Registers};
use super::{AHEAD, Job, Ruled, prefetch};
use crate::arch::{self, Simd};
use crate::pack::Codebook;
use crate::quantise::QuantisedRows;

/// Most tokens: with more, GEMM's unpacking into the cache costs less than unpacking again for each
/// tile.
pub(super) const TOKENS: usize = 16;

/// The products of a job.
pub(super) struct Kernel<'a, F> {
    job: Job<'a, QuantisedRows<'a>>,
    format: PhantomData<F>,
}

impl<'a, F: Ruled> Kernel<'a, F> {
    pub(super) fn new(job: Job<'a, QuantisedRows<'a>>) -> Self {
        Kernel { job, format: PhantomData }
    }

    /// Some panels for as many tokens from `token` on as one tile takes; how many it took.
    #[inline(always)]
    fn tile<S: Simd>(
        &self,
        simd: S,
        x: Activations<'_>,
        panels: Range<usize>,
        token: usize,
        left: usize,
    ) -> usize {
        let job = &self.job;
        macro_rules! tile {
            ($n:literal) => {{
                simd.call(Panels::<F, $n> { job, x, panels, token, format: PhantomData });
                $n
            }};
        }
        if S::SCALAR {
            return tile!(1);
        }
        // A token needs one sum, and one dot on its way (two for `Halves`): eight tokens, a run's
        // weights and its terms fit in 32 registers, four in the eight pairs of AVX2 with some
        // spills.
        if S::WIDE && left >= 8 {
            return tile!(8);
        }
        match left {
            4.. => tile!(4),
            2.. => tile!(2),
            _ => tile!(1),
        }
    }
}

impl<F: Ruled> arch::Kernel for Kernel<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let tokens = self.job.tokens.clone();
        let x = Activations::new(self.job.input, F::ACTIVATIONS);
        // One call for all panels: the prefetches of a panel's end reach into the next one.
        if tokens.len() == 1 {
            self.tile(simd, x, self.job.panels.clone(), tokens.start, 1);
            return;
        }
        for panel in self.job.panels.clone() {
            let mut token = tokens.start;
            while token < tokens.end {
                token += self.tile(simd, x, panel..panel + 1, token, x.in_group(token, tokens.end));
            }
        }
    }
}

/// Some panels for `N` tokens of one group.
struct Panels<'a, F, const N: usize> {
    job: &'a Job<'a, QuantisedRows<'a>>,
    x: Activations<'a>,
    panels: Range<usize>,
    token: usize,
    format: PhantomData<F>,
}

impl<F: Ruled, const N: usize> arch::Kernel for Panels<'_, F, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let first = self.x.index(self.token, 0);
        let codebook = self.job.matrix.codebook();
        for panel in self.panels.clone() {
            // One sum for each token; a lane is a row, so nothing is joined at the end.
            let mut sums = [simd.splat(0.0); N];
            let blocks: &[F::Block] = self.job.matrix.panel(panel);
            let mut index = first;
            for block in blocks {
                for run in 0..F::RUNS {
                    prefetch(simd, block, run, F::RUNS, AHEAD);
                    self.add(simd, codebook, block, run, index, &mut sums);
                    index += self.x.stride();
                }
            }
            let outputs = self.job.target.of(panel..panel + 1);
            for (index, sum) in sums.into_iter().enumerate() {
                outputs.write(simd, self.token + index, &[sum]);
            }
        }
    }
}

impl<F: Ruled, const N: usize> Panels<'_, F, N> {
    /// Adds a run, whose activations are at `index`.
    #[inline(always)]
    fn add<S: Simd>(
        &self,
        simd: S,
        codebook: &Codebook,
        block: &F::Block,
        run: usize,
        index: usize,
        sums: &mut [S::F32; N],
    ) {
        // Unpacked once for all `N` tokens.
        let weights: Registers<S> = Registers {
            weights: F::weights(simd, codebook, block, run),
            terms: F::terms(simd, codebook, block, run),
        };
        let x = self.x.run::<N>(index);
        let dots = x.dots::<S, F::Rule, 1>(simd, &weights);
        for t in 0..N {
            sums[t] = x.finish::<S, F::Rule>(simd, t, dots[t][0], &weights.terms, sums[t]);
        }
    }
}
