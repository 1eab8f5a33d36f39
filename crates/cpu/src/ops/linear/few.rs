//! Few tokens: weights go from memory to registers, are unpacked there and meet every token at once.

use std::marker::PhantomData;
use std::ops::Range;

use super::tile::{Activations, Registers};
use super::{AHEAD, Job, Ruled, prefetch};
use crate::arch::{self, Simd};
use crate::pack::Codebook;
use crate::quantise::QuantisedRows;

/// Most tokens that are handled here.
pub(super) const TOKENS: usize = 16;

/// All tokens of a job.
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
        match (S::REGISTERS >= 32, left) {
            (true, 8..) => tile!(8),
            (_, 4..) => tile!(4),
            (_, 2..) => tile!(2),
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
