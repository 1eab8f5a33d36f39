//! The arithmetic of a run of 32 columns: from its integer dot to the f32 accumulator.
//!
//! With `s` the exact integer dot of weights and activations, one rounding for each line:
//!
//! | types | accumulator |
//! | --- | --- |
//! | all | `acc = fma(s, scale * x_scale, acc)` |
//! | with a minimum, after it | `acc = fma(minimum, x_scaled_sum, acc)` |
//! | with a minimum for each half, after it | the same for the low half, then for the high half |
//!
//! Q2_K, Q3_K, Q6_K and the types with a codebook have two scales in a run: `s = scale0 * dot0 +
//! scale1 * dot1`, an integer below 2^24 and so exact in f32. NVFP4's two are no integers but exact
//! products each, so their sum is rounded once: `s = fma(scale0, dot0, scale1 * dot1)`. Q2_K's
//! weights and scales are so small that their products are bytes, and one dot gives `s`. Ternary
//! weights come sixteenfold with a sixteenth of their scale.

use crate::arch::Simd;
use crate::pack::{
    Format, IQ4_NL, IQ4_XS, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0, Q8_K, TQ2_0, Terms,
};
use crate::quantise::{Term, WHOLE};

/// Arithmetic of a run, for one token and 16 outputs.
pub(super) trait Rule: 'static {
    /// Integer sums on their way.
    type Dots<S: Simd>: Copy;
    /// Whether the sums of two panels and six tokens fit in 32 registers beside weights and
    /// activations; those of four always do.
    const SIX_TOKENS: bool;

    /// Steps whose dots, added up, fit in 16 bits: 4 for weights up to 31, 2 up to 63, else 1.
    const JOINED: usize;

    /// Sums of no columns. `first` and `second` are what [`Ruled::ACTIVATIONS`] names.
    fn start<S: Simd>(simd: S, first: u32, second: u32) -> Self::Dots<S>;
    /// Four more columns of half 0 or 1 of the run.
    fn step<S: Simd, const HALF: usize>(simd: S, dots: &mut Self::Dots<S>, weights: S::U8, x: [i8; 4]);
    /// `K` steps at once; `K` is at most [`JOINED`](Self::JOINED).
    fn steps<S: Simd, const HALF: usize, const K: usize>(
        simd: S,
        dots: &mut Self::Dots<S>,
        weights: &[S::U8; K],
        x: &[[i8; 4]; K],
    );
    /// The accumulator with the run added; `scale`, `first` and `second` are the token's.
    fn finish<S: Simd>(
        simd: S,
        dots: Self::Dots<S>,
        terms: &Terms<S>,
        scale: S::F32,
        first: u32,
        second: u32,
        sum: S::F32,
    ) -> S::F32;
}

/// The rule of a packed type.
pub(super) trait Ruled: Format {
    /// Its arithmetic.
    type Rule: Rule;
    /// What the rule reads of activations beside their scale; it may ignore the second.
    const ACTIVATIONS: [Term; 2];
}

macro_rules! ruled {
    ($($format:ident: $rule:ty, $first:ident, $second:ident;)*) => {
        $(impl Ruled for $format {
            type Rule = $rule;
            const ACTIVATIONS: [Term; 2] = [Term::$first, Term::$second];
        })*
    };
}

ruled! {
    Q4_0: Offset<4>, Offset8, Offset8;
    Q4_1: Minimum, ScaledSum, ScaledSum;
    Q5_0: Offset<4>, Offset16, Offset16;
    Q5_1: Minimum, ScaledSum, ScaledSum;
    Q8_0: Offset<1>, Offset128, Offset128;
    Q2_K: HalfMinimums, ScaledLowSum, ScaledHighSum;
    Q3_K: Halves<1>, LowHalf32, WholeHighHalf32;
    Q4_K: Minimum, ScaledSum, ScaledSum;
    Q5_K: Minimum, ScaledSum, ScaledSum;
    Q6_K: Halves<1>, LowHalf32, WholeHighHalf32;
    Q8_K: Offset<1>, Offset128, Offset128;
    TQ2_0: Offset<2>, Offset16, Offset16;
    IQ4_NL: Halves<4>, LowHalf32, WholeHighHalf32;
    IQ4_XS: Halves<4>, LowHalf32, WholeHighHalf32;
}

macro_rules! steps_of_one_sum {
    () => {
        #[inline(always)]
        fn steps<S: Simd, const HALF: usize, const K: usize>(
            simd: S,
            dots: &mut S::I32,
            weights: &[S::U8; K],
            x: &[[i8; 4]; K],
        ) {
            *dots = simd.dot4_steps(*dots, weights, x);
        }
    };
}

/// Weights were moved up to be unsigned; where no two steps can be joined they use all eight bits.
pub(super) struct Offset<const JOINED: usize>;

impl<const JOINED: usize> Rule for Offset<JOINED> {
    type Dots<S: Simd> = S::I32;
    const SIX_TOKENS: bool = true;
    const JOINED: usize = JOINED;

    #[inline(always)]
    fn start<S: Simd>(simd: S, first: u32, _second: u32) -> S::I32 {
        simd.splat_i32(first as i32)
    }

    #[inline(always)]
    fn step<S: Simd, const HALF: usize>(simd: S, dots: &mut S::I32, weights: S::U8, x: [i8; 4]) {
        *dots = if JOINED == 1 { simd.dot4_wide(*dots, weights, x) } else { simd.dot4(*dots, weights, x) };
    }

    steps_of_one_sum!();

    #[inline(always)]
    fn finish<S: Simd>(
        simd: S,
        dots: S::I32,
        terms: &Terms<S>,
        scale: S::F32,
        _first: u32,
        _second: u32,
        sum: S::F32,
    ) -> S::F32 {
        simd.fma(simd.to_f32(dots), simd.mul(terms[0], scale), sum)
    }
}

/// Unsigned weights with a minimum.
pub(super) struct Minimum;

impl Rule for Minimum {
    type Dots<S: Simd> = S::I32;
    const SIX_TOKENS: bool = true;
    const JOINED: usize = 4;

    #[inline(always)]
    fn start<S: Simd>(simd: S, _first: u32, _second: u32) -> S::I32 {
        simd.splat_i32(0)
    }

    #[inline(always)]
    fn step<S: Simd, const HALF: usize>(simd: S, dots: &mut S::I32, weights: S::U8, x: [i8; 4]) {
        *dots = simd.dot4(*dots, weights, x);
    }

    steps_of_one_sum!();

    #[inline(always)]
    fn finish<S: Simd>(
        simd: S,
        dots: S::I32,
        terms: &Terms<S>,
        scale: S::F32,
        first: u32,
        _second: u32,
        sum: S::F32,
    ) -> S::F32 {
        let sum = simd.fma(simd.to_f32(dots), simd.mul(terms[0], scale), sum);
        simd.fma(terms[1], simd.splat(f32::from_bits(first)), sum)
    }
}

/// Unsigned weights with a minimum for each half of 16 columns.
pub(super) struct HalfMinimums;

impl Rule for HalfMinimums {
    type Dots<S: Simd> = S::I32;
    const SIX_TOKENS: bool = true;
    const JOINED: usize = 2;

    #[inline(always)]
    fn start<S: Simd>(simd: S, _first: u32, _second: u32) -> S::I32 {
        simd.splat_i32(0)
    }

    #[inline(always)]
    fn step<S: Simd, const HALF: usize>(simd: S, dots: &mut S::I32, weights: S::U8, x: [i8; 4]) {
        *dots = simd.dot4(*dots, weights, x);
    }

    steps_of_one_sum!();

    #[inline(always)]
    fn finish<S: Simd>(
        simd: S,
        dots: S::I32,
        terms: &Terms<S>,
        scale: S::F32,
        first: u32,
        second: u32,
        sum: S::F32,
    ) -> S::F32 {
        let sum = simd.fma(simd.to_f32(dots), simd.mul(terms[0], scale), sum);
        let sum = simd.fma(terms[1], simd.splat(f32::from_bits(first)), sum);
        simd.fma(terms[2], simd.splat(f32::from_bits(second)), sum)
    }
}

/// Two halves of 16 columns with a scale each; weights were moved up by 32 times `UP`.
pub(super) struct Halves<const UP: i32>;

impl<const UP: i32> Rule for Halves<UP> {
    type Dots<S: Simd> = [S::I32; 2];
    const SIX_TOKENS: bool = false;
    const JOINED: usize = if UP > 1 { 1 } else { 2 };

    #[inline(always)]
    fn start<S: Simd>(simd: S, first: u32, second: u32) -> [S::I32; 2] {
        let whole = WHOLE.to_bits() as i32;
        let high = (second as i32).wrapping_sub(whole).wrapping_mul(UP).wrapping_add(whole);
        [simd.splat_i32((first as i32).wrapping_mul(UP)), simd.splat_i32(high)]
    }

    #[inline(always)]
    fn step<S: Simd, const HALF: usize>(simd: S, dots: &mut [S::I32; 2], weights: S::U8, x: [i8; 4]) {
        dots[HALF] =
            if UP > 1 { simd.dot4_wide(dots[HALF], weights, x) } else { simd.dot4(dots[HALF], weights, x) };
    }

    #[inline(always)]
    fn steps<S: Simd, const HALF: usize, const K: usize>(
        simd: S,
        dots: &mut [S::I32; 2],
        weights: &[S::U8; K],
        x: &[[i8; 4]; K],
    ) {
        dots[HALF] = simd.dot4_steps(dots[HALF], weights, x);
    }

    /// The second half's integers start at the bits of [`WHOLE`], so that its conversion to f32 and
    /// its product are one operation: `fma(scale, WHOLE + dot, -scale * WHOLE)`, all exact.
    #[inline(always)]
    fn finish<S: Simd>(
        simd: S,
        dots: [S::I32; 2],
        terms: &Terms<S>,
        scale: S::F32,
        _first: u32,
        _second: u32,
        sum: S::F32,
    ) -> S::F32 {
        let back = simd.mul(terms[2], simd.splat(-WHOLE));
        let high = simd.fma(terms[2], simd.from_bits(dots[1]), back);
        let dot = simd.fma(terms[1], simd.to_f32(dots[0]), high);
        simd.fma(dot, simd.mul(terms[0], scale), sum)
    }
}
