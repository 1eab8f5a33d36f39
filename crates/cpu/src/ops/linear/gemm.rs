//! GEMM for prefill: unpacks up to [`RUNS`] runs of two panels into the first-level cache, then
//! multiplies them with up to [`TOKENS`] tokens.
//!
//! Arithmetic bounds it. Unpacking costs about as much as multiplying with one token, so it is
//! shared by a block of tokens. The integer sums of a tile of tokens are in registers. The f32
//! accumulators of the whole block are in the cache: they leave registers once for each pass over
//! some runs.

use std::marker::PhantomData;
use std::ops::Range;

use zerocopy::IntoBytes;

use super::rule::Rule;
use super::tile::{Activations, Weights};
use super::{Job, LINE, Outputs, Ruled, quantised_bytes, tokens_in_cache};
use crate::arch::{self, LANES, Simd};
use crate::pack::Run;
use crate::quantise::{GROUP, QuantisedRows};

/// Panels that are multiplied with the same activations, so that four activations are loaded once
/// for 32 outputs.
const PANELS: usize = 2;
/// Most runs of a panel that are unpacked at a time: with two panels 28 KiB, most of a first-level
/// cache of 32 KiB.
const RUNS: usize = 20;
/// Most tokens of a block.
pub(super) const TOKENS: usize = 256;

/// Runs, each of [`PANELS`] panels.
type Runs = [[Run; PANELS]; RUNS];
/// Accumulators of a token.
type Sums = [[f32; LANES]; PANELS];

/// The products of a job.
pub(super) struct Kernel<'a, F> {
    job: Job<'a, QuantisedRows<'a>>,
    format: PhantomData<F>,
}

impl<'a, F: Ruled> Kernel<'a, F> {
    pub(super) fn new(job: Job<'a, QuantisedRows<'a>>) -> Self {
        Kernel { job, format: PhantomData }
    }

    /// Memory of some runs, in whole blocks, of up to [`PANELS`] panels.
    fn packed(&self, panels: Range<usize>, runs: Range<usize>) -> [&'a [u8]; PANELS] {
        let mut bytes = [&[][..]; PANELS];
        for (bytes, panel) in bytes.iter_mut().zip(panels) {
            *bytes =
                self.job.matrix.panel::<F::Block>(panel)[runs.start / F::RUNS..runs.end / F::RUNS].as_bytes();
        }
        bytes
    }

    /// Up to [`PANELS`] panels for a block of tokens.
    #[inline(always)]
    fn panels<S: Simd>(
        &self,
        simd: S,
        x: Activations<'_>,
        panels: Range<usize>,
        tokens: Range<usize>,
        runs: &mut Runs,
        sums: &mut [Sums],
    ) {
        let codebook = self.job.matrix.codebook();
        let total = self.job.matrix.panel::<F::Block>(panels.start).len() * F::RUNS;
        let together = runs_together(total, F::RUNS);
        let mut first = 0;
        // No columns are one pass without runs.
        while first < total.max(1) {
            let runs = &mut runs[..together.min(total - first)];
            for (index, panel) in panels.clone().enumerate() {
                let blocks = &self.job.matrix.panel::<F::Block>(panel)[first / F::RUNS..];
                for (at, run) in runs.iter_mut().enumerate() {
                    run[index].fill::<S, F>(simd, codebook, &blocks[at / F::RUNS], at % F::RUNS);
                }
            }
            let tokens = tokens.clone();
            let last = total - first <= together;
            let done = if last { Some(self.job.target.of(panels.clone())) } else { None };
            let next = if last {
                self.packed(panels.end..self.job.panels.end.min(panels.end + PANELS), 0..together.min(total))
            } else {
                self.packed(panels.clone(), first + together..total.min(first + 2 * together))
            };
            let tiles = Tiles { x, tokens, first, runs, next, sums, done, rule: PhantomData::<F::Rule> };
            if panels.len() == PANELS {
                tiles.add::<S, PANELS>(simd)
            } else {
                tiles.add::<S, 1>(simd)
            }
            first += together;
        }
    }
}

/// Length of a part of `total`: as few parts as `most` allows, of nearly the same length, in whole
/// units; a unit at least.
fn part(total: usize, most: usize, unit: usize) -> usize {
    let parts = total.div_ceil((most / unit * unit).max(unit)).max(1);
    total.div_ceil(parts).next_multiple_of(unit).max(unit)
}

/// Runs of a pass, in whole blocks.
fn runs_together(total: usize, of_block: usize) -> usize {
    part(total, RUNS, of_block)
}

/// Tokens of a block, in whole groups.
fn tokens_together(total: usize, bytes_of_token: usize) -> usize {
    part(total, tokens_in_cache(bytes_of_token).min(TOKENS), GROUP)
}

impl<F: Ruled> arch::Kernel for Kernel<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let mut runs = [[Run::ZERO; PANELS]; RUNS];
        let mut sums = [[[0.0; LANES]; PANELS]; TOKENS];
        let x = Activations::new(self.job.input, F::ACTIVATIONS);
        let block = tokens_together(self.job.tokens.len(), quantised_bytes(self.job.matrix.columns()));
        let panels = self.job.panels.clone();
        let mut token = self.job.tokens.start;
        while token < self.job.tokens.end {
            // Blocks end where groups do, so that only the first and the last tile are cut.
            let end = self.job.tokens.end.min((token + block) / GROUP * GROUP);
            let together = if S::JOINS_STEPS && F::Rule::JOINED > 1 { 1 } else { PANELS };
            for panel in panels.clone().step_by(together) {
                let panels = panel..panels.end.min(panel + together);
                self.panels(simd, x, panels, token..end, &mut runs, &mut sums[..end - token]);
            }
            token = end;
        }
    }
}

/// Unpacked runs, of which the first is run `first` of its panel, and the accumulators of some
/// tokens.
///
/// This is the place for another inner kernel: a run holds 8 x 64 bytes of weights for 32 columns
/// of 16 rows, a group of tokens holds 16 x 32 bytes of the same columns, and their exact i32
/// products enter the sums by [`Rule`].
struct Tiles<'a, R> {
    x: Activations<'a>,
    tokens: Range<usize>,
    first: usize,
    runs: &'a [[Run; PANELS]],
    /// Packed weights that are unpacked next. Every tile asks for its share of them: a burst would
    /// wait for memory.
    next: [&'a [u8]; PANELS],
    /// The sums of earlier runs.
    sums: &'a mut [Sums],
    /// Where the sums go, if these are the last runs.
    done: Option<Outputs<'a>>,
    rule: PhantomData<R>,
}

impl<R: Rule> Tiles<'_, R> {
    /// Adds the runs of `P` panels.
    #[inline(always)]
    fn add<S: Simd, const P: usize>(self, simd: S) {
        let Tiles { x, tokens, first, runs, next, sums, done, .. } = self;
        let mut token = tokens.start;
        let mut asked = 0;
        while token < tokens.end {
            let left = x.in_group(token, tokens.end);
            let index = x.index(token, first);
            let rest = &mut sums[token - tokens.start..];
            macro_rules! tile {
                ($n:literal) => {{
                    let sums = rest.first_chunk_mut().expect("there are sums for every token");
                    if let Some(outputs) = &done {
                        for token in token..token + $n {
                            outputs.prefetch(simd, token);
                        }
                    }
                    let due = next[0].len() / LINE * (token + $n - tokens.start) / tokens.len();
                    for line in asked..due {
                        for bytes in next {
                            simd.prefetch(bytes.as_ptr().wrapping_add(line * LINE));
                        }
                    }
                    asked = due;
                    let (fresh, done) = (first == 0, done.as_ref().map(|outputs| (outputs, token)));
                    simd.call(Tile::<R, P, $n> { x, index, runs, sums, fresh, done, rule: PhantomData });
                    token += $n;
                }};
            }
            if S::SCALAR {
                tile!(1);
                continue;
            }
            // Two panels and six tokens are 12 integer sums and 12 accumulators of 32 registers;
            // two and four are 8 of the 8 pairs of AVX2, whose accumulators spill.
            if S::WIDE && R::SIX_TOKENS && left >= 6 {
                tile!(6);
                continue;
            }
            match left {
                4.. => tile!(4),
                2.. => tile!(2),
                _ => tile!(1),
            }
        }
    }
}

/// `P` panels and `N` tokens.
struct Tile<'a, R, const P: usize, const N: usize> {
    x: Activations<'a>,
    /// Where the first token's activations of the first run are.
    index: usize,
    runs: &'a [[Run; PANELS]],
    sums: &'a mut [Sums; N],
    /// Whether these are the first runs.
    fresh: bool,
    /// Where the sums of tokens from a first one on go, if these are the last runs.
    done: Option<(&'a Outputs<'a>, usize)>,
    rule: PhantomData<R>,
}

impl<R: Rule, const P: usize, const N: usize> arch::Kernel for Tile<'_, R, P, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let mut sums = [[simd.splat(0.0); P]; N];
        // The first pass starts from zero in registers: no one needs to clear the cache.
        if !self.fresh {
            for t in 0..N {
                for p in 0..P {
                    sums[t][p] = simd.load(&self.sums[t][p]);
                }
            }
        }
        let mut index = self.index;
        for run in self.runs {
            let x = self.x.run::<N>(index);
            let dots = x.dots::<S, R, P>(simd, run.as_slice());
            // One fused operation for each run and output, in the order of the file: the contract.
            for p in 0..P {
                let terms = run.as_slice().terms(simd, p);
                for t in 0..N {
                    sums[t][p] = x.finish::<S, R>(simd, t, dots[t][p], &terms, sums[t][p]);
                }
            }
            index += self.x.stride();
        }
        // The last pass writes from registers, with the bias.
        if let Some((outputs, token)) = self.done {
            for t in 0..N {
                outputs.write(simd, token + t, &sums[t]);
            }
            return;
        }
        for t in 0..N {
            for p in 0..P {
                simd.store(sums[t][p], &mut self.sums[t][p]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_whole_groups_of_nearly_the_same_length() {
        for columns in [32, 576, 1536, 8960, 1 << 20] {
            let bytes = quantised_bytes(columns);
            for tokens in 1..=TOKENS {
                let block = tokens_together(tokens, bytes);
                assert!(block.is_multiple_of(GROUP) && (GROUP..=TOKENS).contains(&block));
                assert!(block == GROUP || block * bytes <= 3 << 19, "{tokens} tokens of {columns} columns");
                let blocks = tokens.div_ceil(block);
                let shortest = tokens - (blocks - 1) * block;
                assert!(block - shortest < GROUP * blocks, "{tokens} tokens of {columns} columns");
            }
        }
    }

    #[test]
    fn passes_are_whole_blocks_of_nearly_the_same_length() {
        for of_block in [1, 8] {
            for blocks in 1..200 {
                let total = blocks * of_block;
                let together = runs_together(total, of_block);
                assert!(together.is_multiple_of(of_block) && (1..=RUNS).contains(&together));
                assert_eq!(total.div_ceil(together), total.div_ceil(RUNS / of_block * of_block));
            }
        }
    }
}
