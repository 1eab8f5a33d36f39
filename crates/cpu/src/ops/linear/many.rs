//! Many tokens: some runs of a panel are unpacked into the first-level cache and stay there for a block of tokens; tiles of tokens
//! hold their sums in registers.

use std::marker::PhantomData;
use std::ops::Range;

use super::{Job, Rule, Ruled, Tile, in_group, quantised_bytes, tokens_in_cache};
use crate::arch::{self, LANES, Simd};
use crate::pack::{Run, STEPS};
use crate::quantise::{GROUP, QuantisedRows};

/// Runs of a panel that are unpacked at a time.
const RUNS: usize = 16;
/// Most tokens of a block, whose sums wait in the first-level cache.
const TOKENS: usize = 128;

/// All tokens of a job.
pub(super) struct Kernel<'a, F> {
    job: Job<'a, QuantisedRows<'a>>,
    format: PhantomData<F>,
}

impl<'a, F: Ruled> Kernel<'a, F> {
    pub(super) fn new(job: Job<'a, QuantisedRows<'a>>) -> Self {
        Kernel { job, format: PhantomData }
    }

    #[inline(always)]
    fn panel<S: Simd>(
        &self,
        simd: S,
        panel: usize,
        tokens: Range<usize>,
        runs: &mut [Run; RUNS],
        sums: &mut [[f32; LANES]; TOKENS],
    ) {
        let sums = &mut sums[..tokens.len()];
        sums.fill([0.0; LANES]);
        let blocks: &[F::Block] = self.job.matrix.panel(panel);
        for (index, blocks) in blocks.chunks(RUNS / F::RUNS).enumerate() {
            let runs = &mut runs[..blocks.len() * F::RUNS];
            for (block, runs) in blocks.iter().zip(runs.chunks_exact_mut(F::RUNS)) {
                for (run, taken) in runs.iter_mut().enumerate() {
                    taken.fill::<S, F>(simd, block, run);
                }
            }
            add_runs::<S, F::Rule>(simd, self.job.input, tokens.clone(), index * RUNS, runs, sums);
        }
        for (token, sum) in tokens.zip(sums) {
            self.job.target.write(simd, panel, token, simd.load(sum));
        }
    }
}

impl<F: Ruled> arch::Kernel for Kernel<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let mut runs = [Run::ZERO; RUNS];
        let mut sums = [[0.0; LANES]; TOKENS];
        let block = tokens_in_cache(quantised_bytes(self.job.matrix.columns())) / GROUP * GROUP;
        let block = block.clamp(GROUP, TOKENS);
        let mut token = self.job.tokens.start;
        while token < self.job.tokens.end {
            // Blocks end where groups do, so that only the first and the last tile are cut.
            let end = self.job.tokens.end.min((token + block) / GROUP * GROUP);
            for panel in self.job.panels.clone() {
                self.panel(simd, panel, token..end, &mut runs, &mut sums);
            }
            token = end;
        }
    }
}

/// Adds unpacked runs, of which the first is run `first` of its panel, to the sums of some tokens.
///
/// This is the place for another inner kernel: `runs` hold 8 x 64 bytes of weights for 32 columns of 16 rows, a group of tokens
/// holds 16 x 32 bytes of the same columns, and their exact i32 products enter the sums by [`Rule`].
#[inline(always)]
fn add_runs<S: Simd, R: Rule>(
    simd: S,
    input: QuantisedRows<'_>,
    tokens: Range<usize>,
    first: usize,
    runs: &[Run],
    sums: &mut [[f32; LANES]],
) {
    let mut token = tokens.start;
    while token < tokens.end {
        let left = in_group(token, tokens.end, input.group());
        let rest = &mut sums[token - tokens.start..];
        macro_rules! tile {
            ($n:literal) => {{
                let sums = rest.first_chunk_mut().expect("there are sums for every token");
                simd.call(AddRuns::<R, $n> { input, token, first, runs, sums, rule: PhantomData });
                token += $n;
            }};
        }
        match (S::REGISTERS >= 32, left) {
            (true, 16..) => tile!(16),
            (true, 12..) => tile!(12),
            (true, 8..) => tile!(8),
            (_, 4..) => tile!(4),
            (_, 2..) => tile!(2),
            _ => tile!(1),
        }
    }
}

/// A tile of `N` tokens.
struct AddRuns<'a, R, const N: usize> {
    input: QuantisedRows<'a>,
    token: usize,
    first: usize,
    runs: &'a [Run],
    sums: &'a mut [[f32; LANES]; N],
    rule: PhantomData<R>,
}

impl<R: Rule, const N: usize> arch::Kernel for AddRuns<'_, R, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let tile = Tile::<R, N>::new(self.input, self.token);
        let mut sums = [simd.splat(0.0); N];
        for t in 0..N {
            sums[t] = simd.load(&self.sums[t]);
        }
        for (index, run) in self.runs.iter().enumerate() {
            let mut weights = [simd.load_bytes(&run.weights[0]); STEPS];
            for i in 1..STEPS {
                weights[i] = simd.load_bytes(&run.weights[i]);
            }
            let mut terms = [simd.load(&run.terms[0]); 3];
            for i in 1..3 {
                terms[i] = simd.load(&run.terms[i]);
            }
            tile.add(simd, self.first + index, &weights, &terms, &mut sums);
        }
        for t in 0..N {
            simd.store(sums[t], &mut self.sums[t]);
        }
    }
}
