//! Instruction sets behind one vocabulary of sixteen lanes.
//!
//! A [`Simd`] value is a proof that its instruction set is present, so kernels written over it are
//! safe code. Every method gives the same bits on every instruction set: lanes never mix, rounding
//! is IEEE, products are fused only where `fma` says so.

mod generic;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::fmt;
use std::str::FromStr;

pub(crate) use generic::Scalar;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{Avx2, Avx512, Avx512Pairs};

/// Lanes of every vector.
pub(crate) const LANES: usize = 16;

/// An instruction set that kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// Portable code.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, VL, DQ and VNNI.
    Avx512,
}

/// A name that is no instruction set, or one that this processor lacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IsaError {
    /// Not in the list.
    #[error("unknown instruction set {0:?} (choose auto, scalar, avx2 or avx512)")]
    Unknown(String),
    /// Known, but not here.
    #[error("this processor has no {0} (it has {1})")]
    Absent(Isa, String),
}

impl Isa {
    /// Every instruction set, from the most portable on.
    pub const ALL: [Isa; 3] = [Isa::Scalar, Isa::Avx2, Isa::Avx512];

    /// The name that users write.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }

    /// Whether this processor has it.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => Avx2::detect().is_some(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => Avx512::detect().is_some(),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 => false,
        }
    }

    /// All that this processor has, from the most portable on.
    pub fn available() -> impl Iterator<Item = Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.is_available())
    }

    /// The widest that this processor has.
    pub fn best() -> Isa {
        Isa::available().last().unwrap_or(Isa::Scalar)
    }

    /// `auto` or a name.
    ///
    /// # Errors
    /// An unknown name, or an instruction set that this processor lacks.
    pub fn choose(text: &str) -> Result<Isa, IsaError> {
        if text == "auto" {
            return Ok(Isa::best());
        }
        let isa: Isa = text.parse()?;
        if isa.is_available() {
            return Ok(isa);
        }
        let names: Vec<_> = Isa::available().map(Isa::name).collect();
        Err(IsaError::Absent(isa, names.join(", ")))
    }

    /// Runs a kernel compiled for this instruction set.
    ///
    /// # Panics
    /// The processor lacks it; [`Isa::choose`] never gives such a one.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self {
            Isa::Scalar => kernel.run(Scalar),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => Avx2::detect().expect("AVX2 was chosen where it is absent").run(kernel),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => Avx512::detect().expect("AVX-512 was chosen where it is absent").run(kernel),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 => {
                unreachable!("an x86-64 instruction set was chosen on another processor")
            }
        }
    }

    /// As [`run`](Isa::run), with the processor's own instruction for bf16 pair dots where it has
    /// one. Only for kernels that use them, since it is one more compiled copy. The bits are the
    /// same.
    ///
    /// # Panics
    /// The processor lacks the instruction set.
    #[inline]
    pub(crate) fn run_pairs<K: Kernel>(self, kernel: K) -> K::Output {
        #[cfg(target_arch = "x86_64")]
        if self == Isa::Avx512
            && let Some(simd) = Avx512Pairs::detect()
        {
            return simd.run(kernel);
        }
        self.run(kernel)
    }
}

impl FromStr for Isa {
    type Err = IsaError;

    fn from_str(text: &str) -> Result<Self, IsaError> {
        Isa::ALL.into_iter().find(|isa| isa.name() == text).ok_or_else(|| IsaError::Unknown(text.to_owned()))
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// An algorithm written once over any instruction set. Mark `run` and all it calls
/// `#[inline(always)]`, so that it is compiled with the set's features.
pub(crate) trait Kernel {
    /// What it returns.
    type Output;
    /// The algorithm.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// Sixteen-lane arithmetic of one instruction set. A value of the type proves that the processor
/// has it.
#[allow(clippy::wrong_self_convention, reason = "`self` is the proof of presence, not an operand")]
pub(crate) trait Simd: Copy {
    /// Sixteen f32.
    type F32: Copy;
    /// Sixteen i32.
    type I32: Copy;
    /// Sixty-four u8: four for each lane.
    type U8: Copy;
    /// Whether 32 vectors of sixteen f32 fit into the registers, and not only eight. The size of
    /// register tiles follows from it.
    const WIDE: bool;
    /// Whether [`dot4_steps`](Simd::dot4_steps) costs less than the dots of its steps one by one.
    const JOINS_STEPS: bool = false;
    /// Whether lanes are computed one by one. Tiles then have one row: a larger one gains nothing,
    /// and each size is a copy of the kernel to compile.
    ///
    /// Both are tested by an `if` of their own, since only then the copies that an instruction set
    /// never runs are not compiled.
    const SCALAR: bool;

    /// Runs a kernel as a function of its own: register tiles keep their registers only in small
    /// functions.
    fn outlined<K: Kernel>(self, kernel: K) -> K::Output;

    /// `value` in every lane.
    fn splat(self, value: f32) -> Self::F32;
    /// Lanes in order.
    fn load(self, from: &[f32; LANES]) -> Self::F32;
    /// Lanes in order.
    fn store(self, value: Self::F32, to: &mut [f32; LANES]);
    /// Lanes in order, widened exactly.
    fn load_f16(self, from: &[u16; LANES]) -> Self::F32;
    /// Lanes in order, rounded to nearest even.
    fn store_f16(self, value: Self::F32, to: &mut [u16; LANES]);
    /// Lanes in order, widened exactly.
    fn load_bf16(self, from: &[u16; LANES]) -> Self::F32;
    /// Unsigned bytes as numbers.
    fn load_u8(self, from: &[u8; LANES]) -> Self::F32;
    /// Signed bytes as numbers.
    fn load_i8(self, from: &[i8; LANES]) -> Self::F32;
    /// Bytes as numbers: half of what 4 bits of exponent (bias 7) and 3 of fraction stand for, with
    /// numbers below the normal ones. The top bit is not set.
    fn load_e4m3(self, from: &[u8; LANES]) -> Self::F32;
    /// a + b.
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// a - b.
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// a * b.
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// a / b, correctly rounded.
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// a * b + c with one rounding.
    fn fma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    /// a > b ? a : b.
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// a < b ? a : b.
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// |a|.
    fn abs(self, a: Self::F32) -> Self::F32;
    /// a > b ? then : otherwise; false where either is not a number.
    fn select_gt(self, a: Self::F32, b: Self::F32, then: Self::F32, otherwise: Self::F32) -> Self::F32;
    /// Nearest integer, ties to even. The value must fit.
    fn round_to_i32(self, a: Self::F32) -> Self::I32;
    /// value * 2^exponent by adding to the exponent field; the result must be a normal number.
    fn scale_by_power_of_two(self, value: Self::F32, exponent: Self::I32) -> Self::F32;

    /// `value` in every lane.
    fn splat_i32(self, value: i32) -> Self::I32;
    /// Lanes in order.
    fn store_i32(self, value: Self::I32, to: &mut [i32; LANES]);
    /// Nearest f32, ties to even.
    fn to_f32(self, a: Self::I32) -> Self::F32;

    /// Lanes `i` and `i + 8` added, then `i` and `i + 4`, `i + 2`, `i + 1`.
    fn reduce_add(self, a: Self::F32) -> f32;
    /// As [`reduce_add`](Simd::reduce_add) with [`max`](Simd::max).
    fn reduce_max(self, a: Self::F32) -> f32;

    /// Words in order; each holds two bf16, the first in its low half.
    fn load_pairs(self, from: &[u32; LANES]) -> Self::I32;
    /// The bf16 in the low half of each word, widened exactly.
    fn low_bf16(self, pairs: Self::I32) -> Self::F32;
    /// The bf16 in the high half of each word, widened exactly.
    fn high_bf16(self, pairs: Self::I32) -> Self::F32;
    /// Lanes rounded to bf16, to nearest even; lane `2 i` goes to the low half of word `i`. NaN
    /// stays NaN.
    fn store_bf16(self, value: Self::F32, to: &mut [u32; LANES / 2]);
    /// Lanes rounded to bf16, to nearest even. NaN stays NaN.
    fn round_bf16(self, value: Self::F32) -> Self::F32;
    /// For each lane: `accumulator + high(a) * high(b)`, then `+ low(a) * low(b)`, each fused, with
    /// operands and results below the normal numbers taken as zeros of their sign. This is
    /// `vdpbf16ps` (Intel SDM, volume 2C) bit for bit.
    #[inline(always)]
    fn dot_bf16(self, accumulator: Self::F32, a: Self::I32, b: Self::I32) -> Self::F32 {
        dot_bf16(self, accumulator, a, b)
    }

    /// Bytes in order: lane `l` holds bytes `4 l .. 4 l + 4`.
    fn load_bytes(self, from: &[u8; 4 * LANES]) -> Self::U8;
    /// Every byte with its top bit turned over: a signed byte plus 128.
    fn flip_top_bits(self, a: Self::U8) -> Self::U8;
    /// The low four bits of every byte.
    fn low_nibbles(self, a: Self::U8) -> Self::U8;
    /// The high four bits of every byte, moved down.
    fn high_nibbles(self, a: Self::U8) -> Self::U8;
    /// The byte of `table` that each byte names; all are below 16.
    fn look_up(self, table: &[u8; 16], indices: Self::U8) -> Self::U8;
    /// a | (bit b of `plane` ? `set` : `unset`) for byte b.
    fn or_bit_choice(self, a: Self::U8, plane: u64, unset: u8, set: u8) -> Self::U8;
    /// a | (bit b of `plane` ? `value` : 0) for byte b.
    #[inline(always)]
    fn or_bit_plane(self, a: Self::U8, plane: u64, value: u8) -> Self::U8 {
        self.or_bit_choice(a, plane, 0, value)
    }
    /// For each lane: accumulator + sum over its four bytes of weight * activation. Weights are at
    /// most 127.
    fn dot4(self, accumulator: Self::I32, weights: Self::U8, activations: [i8; 4]) -> Self::I32;
    /// [`dot4`](Simd::dot4) over `K` steps. Twice `K` products of a weight with 127 stay below 2^15.
    #[inline(always)]
    fn dot4_steps<const K: usize>(
        self,
        accumulator: Self::I32,
        weights: &[Self::U8; K],
        activations: &[[i8; 4]; K],
    ) -> Self::I32 {
        let steps = weights.iter().zip(activations);
        steps.fold(accumulator, |sum, (weights, four)| self.dot4(sum, *weights, *four))
    }

    /// As [`dot4`](Simd::dot4) for weights of the whole u8 range.
    fn dot4_wide(self, accumulator: Self::I32, weights: Self::U8, activations: [i8; 4]) -> Self::I32;

    /// Bytes in order, as [`load_bytes`](Simd::load_bytes) takes them.
    fn store_bytes(self, value: Self::U8, to: &mut [u8; 4 * LANES]);
    /// a | ((p >> (2 * step)) & 3) << 4 for every byte of `a` and its byte `p` of `pairs`; `step`
    /// is below 4.
    fn or_pairs_of_step(self, a: Self::U8, pairs: Self::U8, step: usize) -> Self::U8;
    /// (p >> (2 * step)) & 3 for every byte `p` of `pairs`; `step` is below 4.
    fn pairs_of_step(self, pairs: Self::U8, step: usize) -> Self::U8;
    /// Every byte of `a` times the factor of its lane. Products must fit in a byte.
    fn mul_lanes(self, a: Self::U8, factors: &[u8; LANES]) -> Self::U8;
    /// The largest magnitude among 32 values; not a number if one of them is not.
    fn largest_magnitude(self, low: Self::F32, high: Self::F32) -> f32;
    /// Lanes in order; every one fits in a signed byte.
    fn store_i8(self, value: Self::I32, to: &mut [i8; LANES]);
    /// The sum of all lanes; it must fit.
    fn sum_i32(self, value: Self::I32) -> i32;
    /// The number whose bits each lane holds.
    fn from_bits(self, bits: Self::I32) -> Self::F32;
    /// Runs a kernel as a function of its own, which all callers share.
    fn call<K: Kernel>(self, kernel: K) -> K::Output;

    /// Asks for the cache line at an address that may be outside of any allocation.
    fn prefetch(self, address: *const u8);
}

/// [`Simd::dot_bf16`] out of the other methods.
#[inline(always)]
fn dot_bf16<S: Simd>(simd: S, accumulator: S::F32, a: S::I32, b: S::I32) -> S::F32 {
    let sum = flushed_fma(simd, simd.high_bf16(a), simd.high_bf16(b), accumulator);
    flushed_fma(simd, simd.low_bf16(a), simd.low_bf16(b), sum)
}

/// a * b + c with one rounding, where operands and results below the normal numbers are zeros of
/// their sign. A result is below them when it is so after rounding with an unbounded exponent,
/// which the same sum moved up by 2^64 shows.
#[inline(always)]
fn flushed_fma<S: Simd>(simd: S, a: S::F32, b: S::F32, c: S::F32) -> S::F32 {
    let smallest = simd.splat(f32::MIN_POSITIVE);
    let zero = simd.splat(0.0);
    let flush = |x: S::F32| simd.select_gt(smallest, simd.abs(x), simd.mul(x, zero), x);
    let (a, b, c) = (flush(a), flush(b), flush(c));
    let sum = simd.fma(a, b, c);
    let up = simd.splat(f32::from_bits((127 + 64) << 23));
    // A large `a` makes the moved sum infinite or no number, which is no less than the bound
    // either.
    let moved = simd.fma(simd.mul(a, up), b, simd.mul(c, up));
    let bound = simd.mul(smallest, up);
    simd.select_gt(bound, simd.abs(moved), simd.mul(sum, zero), sum)
}

#[cfg(test)]
mod tests;
