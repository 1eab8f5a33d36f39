//! Integer dots of some panels with some tokens.

use super::rule::Rule;
use crate::arch::Simd;
use crate::pack::{Run, STEPS, Terms};
use crate::quantise::{QuantisedRows, Term, WORDS};

/// Quantised rows as kernels read them: every array whole, one index for all.
#[derive(Clone, Copy)]
pub(super) struct Activations<'a> {
    rows: QuantisedRows<'a>,
    quants: &'a [[u32; WORDS]],
    scales: &'a [u32],
    first: &'a [u32],
    second: &'a [u32],
}

impl<'a> Activations<'a> {
    /// All rows, with two terms beside the scale.
    pub(super) fn new(rows: QuantisedRows<'a>, terms: [Term; 2]) -> Self {
        Activations {
            rows,
            quants: rows.quants(),
            scales: rows.terms(Term::Scale),
            first: rows.terms(terms[0]),
            second: rows.terms(terms[1]),
        }
    }

    /// Where run `run` of a token is.
    #[inline(always)]
    pub(super) fn index(&self, token: usize, run: usize) -> usize {
        self.rows.index(token, run)
    }

    /// What lies between a run and the next one of the same token.
    #[inline(always)]
    pub(super) fn stride(&self) -> usize {
        self.rows.group()
    }

    /// The next tile of tokens from `token` on: those of its group before `end`.
    #[inline(always)]
    pub(super) fn in_group(&self, token: usize, end: usize) -> usize {
        let group = self.rows.group();
        (end - token).min(group - token % group)
    }

    /// A run of `N` tokens of one group.
    #[inline(always)]
    pub(super) fn run<const N: usize>(&self, index: usize) -> RunOfTokens<'a, N> {
        RunOfTokens {
            quants: part(self.quants, index),
            scales: part(self.scales, index),
            first: part(self.first, index),
            second: part(self.second, index),
        }
    }
}

#[inline(always)]
fn part<T, const N: usize>(values: &[T], index: usize) -> &[T; N] {
    values[index..].first_chunk().expect("tokens of one group")
}

/// 32 columns of `N` tokens.
#[derive(Clone, Copy)]
pub(super) struct RunOfTokens<'a, const N: usize> {
    quants: &'a [[u32; WORDS]; N],
    scales: &'a [u32; N],
    first: &'a [u32; N],
    second: &'a [u32; N],
}

/// Weights of a run of some panels.
pub(super) trait Weights<S: Simd> {
    /// Step `step` of panel `panel`.
    fn step(&self, simd: S, panel: usize, step: usize) -> S::U8;
    /// Terms of panel `panel`.
    fn terms(&self, simd: S, panel: usize) -> Terms<S>;
}

/// One panel in registers.
pub(super) struct Registers<S: Simd> {
    pub(super) weights: [S::U8; STEPS],
    pub(super) terms: Terms<S>,
}

impl<S: Simd> Weights<S> for Registers<S> {
    #[inline(always)]
    fn step(&self, _simd: S, _panel: usize, step: usize) -> S::U8 {
        self.weights[step]
    }

    #[inline(always)]
    fn terms(&self, _simd: S, _panel: usize) -> Terms<S> {
        self.terms
    }
}

impl<S: Simd> Weights<S> for [Run] {
    #[inline(always)]
    fn step(&self, simd: S, panel: usize, step: usize) -> S::U8 {
        simd.load_bytes(&self[panel].weights[step])
    }

    #[inline(always)]
    fn terms(&self, simd: S, panel: usize) -> Terms<S> {
        let [a, b, c] = &self[panel].terms;
        [simd.load(a), simd.load(b), simd.load(c)]
    }
}

impl<const N: usize> RunOfTokens<'_, N> {
    /// Integer sums of `P` panels. All advance together, so that none waits for its own last step,
    /// and the four activations of a token and a step are loaded once for all panels.
    #[inline(always)]
    pub(super) fn dots<S: Simd, R: Rule, const P: usize>(
        &self,
        simd: S,
        weights: &(impl Weights<S> + ?Sized),
    ) -> [[R::Dots<S>; P]; N] {
        let mut dots = [[R::start(simd, 0, 0); P]; N];
        for t in 0..N {
            dots[t] = [R::start(simd, self.first[t], self.second[t]); P];
        }
        self.half::<S, R, P, 0>(simd, weights, &mut dots);
        self.half::<S, R, P, 1>(simd, weights, &mut dots);
        dots
    }

    #[inline(always)]
    fn half<S: Simd, R: Rule, const P: usize, const HALF: usize>(
        &self,
        simd: S,
        weights: &(impl Weights<S> + ?Sized),
        dots: &mut [[R::Dots<S>; P]; N],
    ) {
        if S::JOINS_STEPS && R::JOINED > 1 {
            for first in (HALF * STEPS / 2..(HALF + 1) * STEPS / 2).step_by(R::JOINED) {
                match R::JOINED {
                    4 => self.joined::<S, R, P, HALF, 4>(simd, weights, first, dots),
                    _ => self.joined::<S, R, P, HALF, 2>(simd, weights, first, dots),
                }
            }
            return;
        }
        // Step by step over all sums: each waits for its own last dot only, so the more sums, the
        // better the latency is hidden.
        for i in HALF * STEPS / 2..(HALF + 1) * STEPS / 2 {
            let mut step = [weights.step(simd, 0, i); P];
            for p in 1..P {
                step[p] = weights.step(simd, p, i);
            }
            for t in 0..N {
                let x = self.quants[t][i].to_le_bytes().map(|byte| byte as i8);
                for p in 0..P {
                    R::step::<S, HALF>(simd, &mut dots[t][p], step[p], x);
                }
            }
        }
    }

    /// `K` steps from `first` on. The weights of a panel's steps stay in registers for all tokens.
    #[inline(always)]
    fn joined<S: Simd, R: Rule, const P: usize, const HALF: usize, const K: usize>(
        &self,
        simd: S,
        weights: &(impl Weights<S> + ?Sized),
        first: usize,
        dots: &mut [[R::Dots<S>; P]; N],
    ) {
        for p in 0..P {
            let mut steps = [weights.step(simd, p, first); K];
            for step in 1..K {
                steps[step] = weights.step(simd, p, first + step);
            }
            for t in 0..N {
                let mut x = [[0; 4]; K];
                for step in 0..K {
                    x[step] = self.quants[t][first + step].to_le_bytes().map(|byte| byte as i8);
                }
                R::steps::<S, HALF, K>(simd, &mut dots[t][p], &steps, &x);
            }
        }
    }

    /// The accumulator of token `t` with its dots added.
    #[inline(always)]
    pub(super) fn finish<S: Simd, R: Rule>(
        &self,
        simd: S,
        t: usize,
        dots: R::Dots<S>,
        terms: &Terms<S>,
        sum: S::F32,
    ) -> S::F32 {
        let scale = simd.splat(f32::from_bits(self.scales[t]));
        R::finish(simd, dots, terms, scale, self.first[t], self.second[t], sum)
    }
}
