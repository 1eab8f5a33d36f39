//! Sixteen lanes in one 512-bit register.
#![allow(clippy::undocumented_unsafe_blocks, reason = "each block rests on the proof stated at `Lanes512`")]

use std::arch::x86_64::*;

use crate::arch::{Kernel, LANES, Simd, dot_bf16};

features!(features: Avx512, [
    "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni", "avx2", "fma", "f16c", "bmi1", "bmi2",
    "popcnt",
]);
features!(pair_features: Avx512Pairs, [
    "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni", "avx512bf16", "avx2", "fma", "f16c", "bmi1",
    "bmi2", "popcnt",
]);

/// Proof of the first list of features above, and with `PAIRS` of the second one. SAFETY of every
/// block below: a value is only made by `detect` after the processor reported them, and loads and
/// stores go through array references of the vector's size.
#[derive(Clone, Copy)]
pub(crate) struct Lanes512<const PAIRS: bool>(());

/// AVX-512 as [`Isa::Avx512`](crate::Isa::Avx512) asks for it.
pub(crate) type Avx512 = Lanes512<false>;

/// With the instruction for pair dots of bf16.
pub(crate) type Avx512Pairs = Lanes512<true>;

impl Lanes512<false> {
    #[inline]
    pub(crate) fn detect() -> Option<Self> {
        features::detected().then_some(Lanes512(()))
    }

    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        unsafe { features::run(self, kernel) }
    }
}

impl Lanes512<true> {
    #[inline]
    pub(crate) fn detect() -> Option<Self> {
        pair_features::detected().then_some(Lanes512(()))
    }

    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        unsafe { pair_features::run(self, kernel) }
    }
}

/// The bits of each lane rounded to bf16, in the low half of each word.
#[inline(always)]
fn round_bf16<const PAIRS: bool>(_proof: Lanes512<PAIRS>, value: __m512) -> __m512i {
    unsafe {
        let bits = _mm512_castps_si512(value);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let carry = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
        let rounded = _mm512_srli_epi32::<16>(_mm512_add_epi32(bits, carry));
        let quiet = _mm512_or_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(0x40));
        let number = _mm512_cmp_ps_mask::<_CMP_ORD_Q>(value, value);
        _mm512_mask_blend_epi32(number, quiet, rounded)
    }
}

/// Two bf16 operands in the instruction's own type.
#[inline(always)]
fn as_bf16(pairs: __m512i) -> __m512bh {
    // SAFETY: both are 512 plain bits.
    unsafe { std::mem::transmute(pairs) }
}

impl<const PAIRS: bool> Simd for Lanes512<PAIRS> {
    type F32 = __m512;
    type I32 = __m512i;
    type U8 = __m512i;
    const WIDE: bool = true;
    const SCALAR: bool = false;

    #[inline(always)]
    fn outlined<K: Kernel>(self, kernel: K) -> K::Output {
        if PAIRS {
            unsafe { pair_features::outlined(Lanes512(()), kernel) }
        } else {
            unsafe { features::outlined(Lanes512(()), kernel) }
        }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> __m512 {
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> __m512 {
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, value: __m512, to: &mut [f32; LANES]) {
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), value) }
    }

    #[inline(always)]
    fn load_f16(self, from: &[u16; LANES]) -> __m512 {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())) }
    }

    #[inline(always)]
    fn store_f16(self, value: __m512, to: &mut [u16; LANES]) {
        unsafe {
            let half = _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(value);
            _mm256_storeu_si256(to.as_mut_ptr().cast(), half);
        }
    }

    #[inline(always)]
    fn load_bf16(self, from: &[u16; LANES]) -> __m512 {
        unsafe {
            let bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(bits))
        }
    }

    #[inline(always)]
    fn load_u8(self, from: &[u8; LANES]) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(from.as_ptr().cast()))) }
    }

    #[inline(always)]
    fn load_i8(self, from: &[i8; LANES]) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.as_ptr().cast()))) }
    }

    #[inline(always)]
    fn load_e4m3(self, from: &[u8; LANES]) -> __m512 {
        unsafe {
            // The bits are those of an f16 whose exponent has another bias.
            let bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128(from.as_ptr().cast()));
            let numbers = _mm512_cvtph_ps(_mm256_slli_epi16::<7>(bytes));
            _mm512_mul_ps(numbers, _mm512_set1_ps(128.0))
        }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_min_ps(a, b) }
    }

    #[inline(always)]
    fn abs(self, a: __m512) -> __m512 {
        unsafe { _mm512_abs_ps(a) }
    }

    #[inline(always)]
    fn select_gt(self, a: __m512, b: __m512, then: __m512, otherwise: __m512) -> __m512 {
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b), otherwise, then) }
    }

    #[inline(always)]
    fn round_to_i32(self, a: __m512) -> __m512i {
        unsafe { _mm512_cvtps_epi32(a) }
    }

    #[inline(always)]
    fn scale_by_power_of_two(self, value: __m512, exponent: __m512i) -> __m512 {
        unsafe {
            let bits = _mm512_add_epi32(_mm512_castps_si512(value), _mm512_slli_epi32::<23>(exponent));
            _mm512_castsi512_ps(bits)
        }
    }

    #[inline(always)]
    fn splat_i32(self, value: i32) -> __m512i {
        unsafe { _mm512_set1_epi32(value) }
    }

    #[inline(always)]
    fn store_i32(self, value: __m512i, to: &mut [i32; LANES]) {
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), value) }
    }

    #[inline(always)]
    fn to_f32(self, a: __m512i) -> __m512 {
        unsafe { _mm512_cvtepi32_ps(a) }
    }

    #[inline(always)]
    fn reduce_add(self, a: __m512) -> f32 {
        unsafe {
            let eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ps(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }

    #[inline(always)]
    fn reduce_max(self, a: __m512) -> f32 {
        unsafe {
            let eight = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ps(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }

    #[inline(always)]
    fn load_pairs(self, from: &[u32; LANES]) -> __m512i {
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn low_bf16(self, pairs: __m512i) -> __m512 {
        unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(pairs)) }
    }

    #[inline(always)]
    fn high_bf16(self, pairs: __m512i) -> __m512 {
        unsafe { _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32 as i32))) }
    }

    #[inline(always)]
    fn store_bf16(self, value: __m512, to: &mut [u32; LANES / 2]) {
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi16(round_bf16(self, value))) }
    }

    #[inline(always)]
    fn round_bf16(self, value: __m512) -> __m512 {
        self.low_bf16(round_bf16(self, value))
    }

    #[inline(always)]
    fn dot_bf16(self, accumulator: __m512, a: __m512i, b: __m512i) -> __m512 {
        if PAIRS {
            unsafe { _mm512_dpbf16_ps(accumulator, as_bf16(a), as_bf16(b)) }
        } else {
            dot_bf16(self, accumulator, a, b)
        }
    }

    #[inline(always)]
    fn load_bytes(self, from: &[u8; 4 * LANES]) -> __m512i {
        unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
    }

    #[inline(always)]
    fn flip_top_bits(self, a: __m512i) -> __m512i {
        unsafe { _mm512_xor_si512(a, _mm512_set1_epi8(i8::MIN)) }
    }

    #[inline(always)]
    fn low_nibbles(self, a: __m512i) -> __m512i {
        unsafe { _mm512_and_si512(a, _mm512_set1_epi8(15)) }
    }

    #[inline(always)]
    fn high_nibbles(self, a: __m512i) -> __m512i {
        unsafe { _mm512_and_si512(_mm512_srli_epi16::<4>(a), _mm512_set1_epi8(15)) }
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], indices: __m512i) -> __m512i {
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, indices)
        }
    }

    #[inline(always)]
    fn or_bit_choice(self, a: __m512i, plane: u64, unset: u8, set: u8) -> __m512i {
        unsafe {
            let (unset, set) = (_mm512_set1_epi8(unset as i8), _mm512_set1_epi8(set as i8));
            _mm512_or_si512(a, _mm512_mask_blend_epi8(plane, unset, set))
        }
    }

    #[inline(always)]
    fn dot4(self, accumulator: __m512i, weights: __m512i, activations: [i8; 4]) -> __m512i {
        let word = i32::from_le_bytes(activations.map(|value| value as u8));
        unsafe { _mm512_dpbusd_epi32(accumulator, weights, _mm512_set1_epi32(word)) }
    }

    #[inline(always)]
    fn dot4_wide(self, accumulator: __m512i, weights: __m512i, activations: [i8; 4]) -> __m512i {
        self.dot4(accumulator, weights, activations)
    }

    #[inline(always)]
    fn store_bytes(self, value: __m512i, to: &mut [u8; 4 * LANES]) {
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), value) }
    }

    #[inline(always)]
    fn or_pairs_of_step(self, a: __m512i, pairs: __m512i, step: usize) -> __m512i {
        unsafe {
            let moved = match step {
                0 => _mm512_slli_epi16::<4>(pairs),
                1 => _mm512_slli_epi16::<2>(pairs),
                2 => pairs,
                _ => _mm512_srli_epi16::<2>(pairs),
            };
            _mm512_or_si512(a, _mm512_and_si512(moved, _mm512_set1_epi8(0x30)))
        }
    }

    #[inline(always)]
    fn pairs_of_step(self, pairs: __m512i, step: usize) -> __m512i {
        unsafe {
            let moved = match step {
                0 => pairs,
                1 => _mm512_srli_epi16::<2>(pairs),
                2 => _mm512_srli_epi16::<4>(pairs),
                _ => _mm512_srli_epi16::<6>(pairs),
            };
            _mm512_and_si512(moved, _mm512_set1_epi8(3))
        }
    }

    #[inline(always)]
    fn mul_lanes(self, a: __m512i, factors: &[u8; LANES]) -> __m512i {
        unsafe {
            // No product carries out of its byte, so two bytes are multiplied as one number.
            let factors = _mm512_cvtepu8_epi32(_mm_loadu_si128(factors.as_ptr().cast()));
            _mm512_mullo_epi16(a, _mm512_or_si512(factors, _mm512_slli_epi32::<16>(factors)))
        }
    }

    #[inline(always)]
    fn largest_magnitude(self, low: __m512, high: __m512) -> f32 {
        unsafe {
            // Magnitudes are ordered as their bits are, with what is not a number above all.
            let (low, high) = (_mm512_castps_si512(self.abs(low)), _mm512_castps_si512(self.abs(high)));
            f32::from_bits(_mm512_reduce_max_epu32(_mm512_max_epu32(low, high)))
        }
    }

    #[inline(always)]
    fn store_i8(self, value: __m512i, to: &mut [i8; LANES]) {
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(value)) }
    }

    #[inline(always)]
    fn sum_i32(self, value: __m512i) -> i32 {
        unsafe { _mm512_reduce_add_epi32(value) }
    }

    #[inline(always)]
    fn from_bits(self, bits: __m512i) -> __m512 {
        unsafe { _mm512_castsi512_ps(bits) }
    }

    #[inline(always)]
    fn call<K: Kernel>(self, kernel: K) -> K::Output {
        if PAIRS { Lanes512::<true>(()).run(kernel) } else { Lanes512::<false>(()).run(kernel) }
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
}
