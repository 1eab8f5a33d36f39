//! How a run of 32 columns enters an output.
//!
//! With `s` the exact integer dot of weights and activations, one rounding for each line:
//!
//! | types | accumulator |
//! | --- | --- |
//! | all | `acc = fma(s, scale * x_scale, acc)` |
//! | with a minimum, after it | `acc = fma(minimum, x_scaled_sum, acc)` |
//!
//! Q6_K has two scales in a run: `s = scale0 * dot0 + scale1 * dot1`, an integer below 2^24 and so exact in f32.

use crate::arch::Simd;
use crate::pack::{Format, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q6_K, Q8_0, STEPS, Terms};
use crate::quantise::{Term, WORDS};

/// What a rule reads of one token's run.
#[derive(Clone, Copy)]
pub(super) struct Activation<'a> {
    pub(super) quants: &'a [u32; WORDS],
    pub(super) scale: f32,
    /// [`Rule::FIRST`].
    pub(super) first: u32,
    /// [`Rule::SECOND`].
    pub(super) second: u32,
}

/// Arithmetic of a run.
pub(super) trait Rule: 'static {
    /// The first term of activations that it reads beside the scale.
    const FIRST: Term;
    /// The second one; any, where it reads only one.
    const SECOND: Term;

    /// The accumulators of 16 outputs with a run of one token added.
    fn add<S: Simd>(
        simd: S,
        sum: S::F32,
        weights: &[S::U8; STEPS],
        terms: &Terms<S>,
        x: Activation<'_>,
    ) -> S::F32;
}

/// The rule of a packed type.
pub(super) trait Ruled: Format {
    /// Its arithmetic.
    type Rule: Rule;
}

impl Ruled for Q4_0 {
    type Rule = Offset<8>;
}
impl Ruled for Q4_1 {
    type Rule = Minimum;
}
impl Ruled for Q5_0 {
    type Rule = Offset<16>;
}
impl Ruled for Q5_1 {
    type Rule = Minimum;
}
impl Ruled for Q8_0 {
    type Rule = Offset<128>;
}
impl Ruled for Q4_K {
    type Rule = Minimum;
}
impl Ruled for Q6_K {
    type Rule = Halves;
}

/// Weights were moved up by `BY` to be unsigned.
pub(super) struct Offset<const BY: u8>;

impl<const BY: u8> Rule for Offset<BY> {
    const FIRST: Term = match BY {
        8 => Term::Offset8,
        16 => Term::Offset16,
        _ => Term::Offset128,
    };
    const SECOND: Term = Self::FIRST;

    #[inline(always)]
    fn add<S: Simd>(
        simd: S,
        sum: S::F32,
        weights: &[S::U8; STEPS],
        terms: &Terms<S>,
        x: Activation<'_>,
    ) -> S::F32 {
        let mut dot = simd.splat_i32(x.first as i32);
        for i in 0..STEPS {
            let four = four(x.quants[i]);
            dot = if BY == 128 {
                simd.dot4_wide(dot, weights[i], four)
            } else {
                simd.dot4(dot, weights[i], four)
            };
        }
        simd.fma(simd.to_f32(dot), simd.mul(terms[0], simd.splat(x.scale)), sum)
    }
}

/// Unsigned weights with a minimum.
pub(super) struct Minimum;

impl Rule for Minimum {
    const FIRST: Term = Term::ScaledSum;
    const SECOND: Term = Term::ScaledSum;

    #[inline(always)]
    fn add<S: Simd>(
        simd: S,
        sum: S::F32,
        weights: &[S::U8; STEPS],
        terms: &Terms<S>,
        x: Activation<'_>,
    ) -> S::F32 {
        let mut dot = simd.splat_i32(0);
        for i in 0..STEPS {
            dot = simd.dot4(dot, weights[i], four(x.quants[i]));
        }
        let sum = simd.fma(simd.to_f32(dot), simd.mul(terms[0], simd.splat(x.scale)), sum);
        simd.fma(terms[1], simd.splat(f32::from_bits(x.first)), sum)
    }
}

/// Two halves of 16 columns with a scale each; weights were moved up by 32.
pub(super) struct Halves;

/// 1.5 * 2^23: whole numbers below 2^22 in magnitude, added to the bits of this, give the bits of their sum.
const WHOLE: f32 = 12_582_912.0;

impl Rule for Halves {
    const FIRST: Term = Term::LowHalf32;
    const SECOND: Term = Term::HighHalf32;

    /// The second half's conversion to f32 and its product are one operation: `fma(scale, WHOLE + dot, -scale * WHOLE)`, all exact.
    #[inline(always)]
    fn add<S: Simd>(
        simd: S,
        sum: S::F32,
        weights: &[S::U8; STEPS],
        terms: &Terms<S>,
        x: Activation<'_>,
    ) -> S::F32 {
        let mut low = simd.splat_i32(x.first as i32);
        let mut high = simd.splat_i32((x.second as i32).wrapping_add(WHOLE.to_bits() as i32));
        for i in 0..STEPS / 2 {
            low = simd.dot4(low, weights[i], four(x.quants[i]));
            high = simd.dot4(high, weights[i + 4], four(x.quants[i + 4]));
        }
        let back = simd.mul(terms[2], simd.splat(-WHOLE));
        let high = simd.fma(terms[2], simd.from_bits(high), back);
        let dot = simd.fma(terms[1], simd.to_f32(low), high);
        simd.fma(dot, simd.mul(terms[0], simd.splat(x.scale)), sum)
    }
}

#[inline(always)]
fn four(word: u32) -> [i8; 4] {
    word.to_le_bytes().map(|byte| byte as i8)
}
