//! Few tokens: weights go from memory to registers, are unpacked there and meet every token at once.

use std::marker::PhantomData;

use super::{Job, Ruled, Tile, in_group};
use crate::arch::{self, Simd};
use crate::quantise::QuantisedRows;

/// Bytes ahead of the weights in use that are asked for. Panels follow each other, so the end of one reaches into the next.
const AHEAD: usize = 4096;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Up to `N` tokens at a time.
pub(super) struct Kernel<'a, F, const N: usize> {
    job: Job<'a, QuantisedRows<'a>>,
    format: PhantomData<F>,
}

impl<'a, F: Ruled, const N: usize> Kernel<'a, F, N> {
    pub(super) fn new(job: Job<'a, QuantisedRows<'a>>) -> Self {
        Kernel { job, format: PhantomData }
    }

    /// A panel for `M` tokens from `token` on.
    #[inline(always)]
    fn panel<S: Simd, const M: usize>(&self, simd: S, panel: usize, token: usize) {
        let tile = Tile::<F::Rule, M>::new(self.job.input, token);
        let mut sums = [simd.splat(0.0); M];
        let blocks: &[F::Block] = self.job.matrix.panel(panel);
        for (index, block) in blocks.iter().enumerate() {
            for line in 0..size_of::<F::Block>().div_ceil(LINE) {
                simd.prefetch((block as *const F::Block).cast::<u8>().wrapping_add(AHEAD + line * LINE));
            }
            for run in 0..F::RUNS {
                let weights = F::weights(simd, block, run);
                let terms = F::terms(simd, block, run);
                tile.add(simd, index * F::RUNS + run, &weights, &terms, &mut sums);
            }
        }
        for (index, sum) in sums.into_iter().enumerate() {
            self.job.target.write(simd, panel, token + index, sum);
        }
    }
}

impl<F: Ruled, const N: usize> arch::Kernel for Kernel<'_, F, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (tokens, group) = (self.job.tokens.clone(), self.job.input.group());
        for panel in self.job.panels.clone() {
            let mut token = tokens.start;
            while token < tokens.end {
                let count = in_group(token, tokens.end, group);
                if count >= N && N <= S::REGISTERS / 2 {
                    self.panel::<S, N>(simd, panel, token);
                    token += N;
                } else if N > 4 && count >= 4 {
                    self.panel::<S, 4>(simd, panel, token);
                    token += 4;
                } else {
                    self.panel::<S, 1>(simd, panel, token);
                    token += 1;
                }
            }
        }
    }
}
