//! Instruction sets behind one vocabulary of sixteen lanes.
//!
//! A [`Simd`] value is a proof that its instruction set is present, so kernels written over it are safe code. Every
//! method gives the same bits on every instruction set: lanes never mix, rounding is IEEE, products are fused only
//! where `fma` says so.

mod generic;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::fmt;
use std::str::FromStr;

pub(crate) use generic::Scalar;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{Avx2, Avx512};

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

/// An algorithm written once over any instruction set. Mark `run` and all it calls `#[inline(always)]`, so that it is
/// compiled with the set's features.
pub(crate) trait Kernel {
    /// What it returns.
    type Output;
    /// The algorithm.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// Sixteen-lane arithmetic of one instruction set. A value of the type proves that the processor has it.
pub(crate) trait Simd: Copy {
    /// Sixteen f32.
    type F32: Copy;
    /// Sixteen i32.
    type I32: Copy;
    /// Sixty-four u8: four for each lane.
    type U8: Copy;

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

    /// Bytes in order: lane `l` holds bytes `4 l .. 4 l + 4`.
    fn load_bytes(self, from: &[u8; 4 * LANES]) -> Self::U8;
    /// The low four bits of every byte.
    fn low_nibbles(self, a: Self::U8) -> Self::U8;
    /// The high four bits of every byte, moved down.
    fn high_nibbles(self, a: Self::U8) -> Self::U8;
    /// a | (bit b of `plane` ? `value` : 0) for byte b.
    fn or_bit_plane(self, a: Self::U8, plane: u64, value: u8) -> Self::U8;
    /// a | ((pairs >> (2 * (b % 4))) & 3) << 4 for byte b, where `pairs` is byte b / 4: two more bits for every byte.
    fn or_bit_pairs(self, a: Self::U8, pairs: &[u8; LANES]) -> Self::U8;
    /// For each lane: accumulator + sum over its four bytes of weight * activation. Weights are at most 127.
    fn dot4(self, accumulator: Self::I32, weights: Self::U8, activations: [i8; 4]) -> Self::I32;
    /// As [`dot4`](Simd::dot4) for weights of the whole u8 range.
    fn dot4_wide(self, accumulator: Self::I32, weights: Self::U8, activations: [i8; 4]) -> Self::I32;

    /// Asks for the cache line at an address that may be outside of any allocation.
    fn prefetch(self, address: *const u8);
}
