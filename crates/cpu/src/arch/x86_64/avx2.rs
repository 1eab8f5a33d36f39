//! Sixteen lanes in a pair of 256-bit registers.
#![allow(clippy::undocumented_unsafe_blocks, reason = "each block rests on the proof stated at `Avx2`")]

use std::arch::x86_64::*;

use crate::arch::{Kernel, LANES, Simd};

features!(features: Avx2, ["avx2", "fma", "f16c", "bmi1", "bmi2", "popcnt"]);

/// Proof of the features above. SAFETY of every block below: a value is only made by
/// [`Avx2::detect`] after the processor reported them, and loads and stores stay inside array
/// references of sixteen lanes.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

/// Lanes 0..8 and 8..16.
#[derive(Clone, Copy)]
pub(crate) struct Pair<T>(T, T);

impl Avx2 {
    #[inline]
    pub(crate) fn detect() -> Option<Avx2> {
        features::detected().then_some(Avx2(()))
    }

    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        unsafe { features::run(self, kernel) }
    }

    #[inline(always)]
    fn zip(
        self,
        a: Pair<__m256>,
        b: Pair<__m256>,
        function: impl Fn(__m256, __m256) -> __m256,
    ) -> Pair<__m256> {
        Pair(function(a.0, b.0), function(a.1, b.1))
    }

    /// Joins the lanes of eight: `i` and `i + 4`, `i + 2`, `i + 1`.
    #[inline(always)]
    fn reduce_half(self, a: __m256, function: impl Fn(__m128, __m128) -> __m128) -> f32 {
        unsafe {
            let four = function(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let two = function(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(function(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }

    /// The bits of each lane rounded to bf16, in the low half of each word.
    #[inline(always)]
    fn round_bf16_half(self, a: __m256) -> __m256i {
        unsafe {
            let bits = _mm256_castps_si256(a);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let carry = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
            let rounded = _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, carry));
            let quiet = _mm256_or_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(0x40));
            let number = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_ORD_Q>(a, a));
            _mm256_blendv_epi8(quiet, rounded, number)
        }
    }

    /// Sums of products of four neighbouring bytes, unsigned times signed; no pair of products may
    /// leave 16 bits.
    #[inline(always)]
    fn dot4_half(self, accumulator: __m256i, weights: __m256i, activations: __m256i) -> __m256i {
        unsafe { self.add_pairs_half(accumulator, _mm256_maddubs_epi16(weights, activations)) }
    }

    /// Adds both i16 of each lane.
    #[inline(always)]
    fn add_pairs_half(self, accumulator: __m256i, pairs: __m256i) -> __m256i {
        unsafe { _mm256_add_epi32(accumulator, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))) }
    }

    /// a | ((p >> (2 * step)) & 3) << 4 for every byte.
    #[inline(always)]
    fn or_pairs_half(self, a: __m256i, pairs: __m256i, step: usize) -> __m256i {
        unsafe {
            let moved = match step {
                0 => _mm256_slli_epi16::<4>(pairs),
                1 => _mm256_slli_epi16::<2>(pairs),
                2 => pairs,
                _ => _mm256_srli_epi16::<2>(pairs),
            };
            _mm256_or_si256(a, _mm256_and_si256(moved, _mm256_set1_epi8(0x30)))
        }
    }

    /// (p >> (2 * step)) & 3 for every byte.
    #[inline(always)]
    fn pairs_half(self, pairs: __m256i, step: usize) -> __m256i {
        unsafe {
            let moved = match step {
                0 => pairs,
                1 => _mm256_srli_epi16::<2>(pairs),
                2 => _mm256_srli_epi16::<4>(pairs),
                _ => _mm256_srli_epi16::<6>(pairs),
            };
            _mm256_and_si256(moved, _mm256_set1_epi8(3))
        }
    }

    /// Bytes times the factor of their lane. No product carries out of its byte, so two bytes are
    /// multiplied as one number.
    #[inline(always)]
    fn mul_lanes_half(self, a: __m256i, factors: __m128i) -> __m256i {
        unsafe {
            let factors = _mm256_cvtepu8_epi32(factors);
            _mm256_mullo_epi16(a, _mm256_or_si256(factors, _mm256_slli_epi32::<16>(factors)))
        }
    }

    /// As `dot4_half` for any bytes: even and odd bytes are widened to 16 bits before they are
    /// multiplied.
    #[inline(always)]
    fn dot4_wide_half(self, accumulator: __m256i, weights: __m256i, activations: __m256i) -> __m256i {
        unsafe {
            let even = _mm256_and_si256(weights, _mm256_set1_epi16(0xff));
            let odd = _mm256_srli_epi16::<8>(weights);
            let even_activations = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(activations));
            let odd_activations = _mm256_srai_epi16::<8>(activations);
            let sum = _mm256_add_epi32(
                _mm256_madd_epi16(even, even_activations),
                _mm256_madd_epi16(odd, odd_activations),
            );
            _mm256_add_epi32(accumulator, sum)
        }
    }

    #[inline(always)]
    fn bit_choice_half(self, a: __m256i, plane: u32, unset: u8, set: u8) -> __m256i {
        unsafe {
            let selector = _mm256_setr_epi8(
                0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3,
                3,
            );
            let bit_of_byte = _mm256_set1_epi64x(i64::from_le_bytes([1, 2, 4, 8, 16, 32, 64, 128]));
            let spread = _mm256_shuffle_epi8(_mm256_set1_epi32(plane as i32), selector);
            let present = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit_of_byte), bit_of_byte);
            let change = _mm256_and_si256(present, _mm256_set1_epi8((unset ^ set) as i8));
            _mm256_or_si256(a, _mm256_xor_si256(change, _mm256_set1_epi8(unset as i8)))
        }
    }
}

impl Simd for Avx2 {
    type F32 = Pair<__m256>;
    type I32 = Pair<__m256i>;
    type U8 = Pair<__m256i>;
    const WIDE: bool = false;
    const JOINS_STEPS: bool = true;
    const SCALAR: bool = false;

    #[inline(always)]
    fn outlined<K: Kernel>(self, kernel: K) -> K::Output {
        unsafe { features::outlined(self, kernel) }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F32 {
        let half = unsafe { _mm256_set1_ps(value) };
        Pair(half, half)
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F32 {
        unsafe { Pair(_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))) }
    }

    #[inline(always)]
    fn store(self, value: Self::F32, to: &mut [f32; LANES]) {
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), value.0);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), value.1);
        }
    }

    #[inline(always)]
    fn load_f16(self, from: &[u16; LANES]) -> Self::F32 {
        let half = |at: usize| unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().add(at).cast())) };
        Pair(half(0), half(8))
    }

    #[inline(always)]
    fn store_f16(self, value: Self::F32, to: &mut [u16; LANES]) {
        unsafe {
            let low = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value.0);
            let high = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value.1);
            _mm_storeu_si128(to.as_mut_ptr().cast(), low);
            _mm_storeu_si128(to.as_mut_ptr().add(8).cast(), high);
        }
    }

    #[inline(always)]
    fn load_bf16(self, from: &[u16; LANES]) -> Self::F32 {
        let half = |at: usize| unsafe {
            let bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.as_ptr().add(at).cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
        };
        Pair(half(0), half(8))
    }

    #[inline(always)]
    fn load_u8(self, from: &[u8; LANES]) -> Self::F32 {
        let half = |at: usize| unsafe {
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(from.as_ptr().add(at).cast())))
        };
        Pair(half(0), half(8))
    }

    #[inline(always)]
    fn load_i8(self, from: &[i8; LANES]) -> Self::F32 {
        let half = |at: usize| unsafe {
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.as_ptr().add(at).cast())))
        };
        Pair(half(0), half(8))
    }

    #[inline(always)]
    fn load_e4m3(self, from: &[u8; LANES]) -> Self::F32 {
        // The bits are those of an f16 whose exponent has another bias.
        let half = |at: usize| unsafe {
            let bytes = _mm_cvtepu8_epi16(_mm_loadl_epi64(from.as_ptr().add(at).cast()));
            let numbers = _mm256_cvtph_ps(_mm_slli_epi16::<7>(bytes));
            _mm256_mul_ps(numbers, _mm256_set1_ps(128.0))
        };
        Pair(half(0), half(8))
    }

    #[inline(always)]
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        self.zip(a, b, |a, b| unsafe { _mm256_add_ps(a, b) })
    }

    #[inline(always)]
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        self.zip(a, b, |a, b| unsafe { _mm256_sub_ps(a, b) })
    }

    #[inline(always)]
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        self.zip(a, b, |a, b| unsafe { _mm256_mul_ps(a, b) })
    }

    #[inline(always)]
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        self.zip(a, b, |a, b| unsafe { _mm256_div_ps(a, b) })
    }

    #[inline(always)]
    fn fma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        unsafe { Pair(_mm256_fmadd_ps(a.0, b.0, c.0), _mm256_fmadd_ps(a.1, b.1, c.1)) }
    }

    #[inline(always)]
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        self.zip(a, b, |a, b| unsafe { _mm256_max_ps(a, b) })
    }

    #[inline(always)]
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        self.zip(a, b, |a, b| unsafe { _mm256_min_ps(a, b) })
    }

    #[inline(always)]
    fn abs(self, a: Self::F32) -> Self::F32 {
        let sign = unsafe { _mm256_set1_ps(-0.0) };
        unsafe { Pair(_mm256_andnot_ps(sign, a.0), _mm256_andnot_ps(sign, a.1)) }
    }

    #[inline(always)]
    fn select_gt(self, a: Self::F32, b: Self::F32, then: Self::F32, otherwise: Self::F32) -> Self::F32 {
        unsafe {
            Pair(
                _mm256_blendv_ps(otherwise.0, then.0, _mm256_cmp_ps::<_CMP_GT_OQ>(a.0, b.0)),
                _mm256_blendv_ps(otherwise.1, then.1, _mm256_cmp_ps::<_CMP_GT_OQ>(a.1, b.1)),
            )
        }
    }

    #[inline(always)]
    fn round_to_i32(self, a: Self::F32) -> Self::I32 {
        unsafe { Pair(_mm256_cvtps_epi32(a.0), _mm256_cvtps_epi32(a.1)) }
    }

    #[inline(always)]
    fn scale_by_power_of_two(self, value: Self::F32, exponent: Self::I32) -> Self::F32 {
        let half = |value: __m256, exponent: __m256i| unsafe {
            let bits = _mm256_add_epi32(_mm256_castps_si256(value), _mm256_slli_epi32::<23>(exponent));
            _mm256_castsi256_ps(bits)
        };
        Pair(half(value.0, exponent.0), half(value.1, exponent.1))
    }

    #[inline(always)]
    fn splat_i32(self, value: i32) -> Self::I32 {
        let half = unsafe { _mm256_set1_epi32(value) };
        Pair(half, half)
    }

    #[inline(always)]
    fn store_i32(self, value: Self::I32, to: &mut [i32; LANES]) {
        unsafe {
            _mm256_storeu_si256(to.as_mut_ptr().cast(), value.0);
            _mm256_storeu_si256(to.as_mut_ptr().add(8).cast(), value.1);
        }
    }

    #[inline(always)]
    fn to_f32(self, a: Self::I32) -> Self::F32 {
        unsafe { Pair(_mm256_cvtepi32_ps(a.0), _mm256_cvtepi32_ps(a.1)) }
    }

    #[inline(always)]
    fn reduce_add(self, a: Self::F32) -> f32 {
        unsafe { self.reduce_half(_mm256_add_ps(a.0, a.1), |a, b| _mm_add_ps(a, b)) }
    }

    #[inline(always)]
    fn reduce_max(self, a: Self::F32) -> f32 {
        unsafe { self.reduce_half(_mm256_max_ps(a.0, a.1), |a, b| _mm_max_ps(a, b)) }
    }

    #[inline(always)]
    fn load_pairs(self, from: &[u32; LANES]) -> Self::I32 {
        unsafe {
            Pair(_mm256_loadu_si256(from.as_ptr().cast()), _mm256_loadu_si256(from.as_ptr().add(8).cast()))
        }
    }

    #[inline(always)]
    fn low_bf16(self, pairs: Self::I32) -> Self::F32 {
        let half = |pairs: __m256i| unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(pairs)) };
        Pair(half(pairs.0), half(pairs.1))
    }

    #[inline(always)]
    fn high_bf16(self, pairs: Self::I32) -> Self::F32 {
        let mask = unsafe { _mm256_set1_epi32(0xffff_0000_u32 as i32) };
        let half = |pairs: __m256i| unsafe { _mm256_castsi256_ps(_mm256_and_si256(pairs, mask)) };
        Pair(half(pairs.0), half(pairs.1))
    }

    #[inline(always)]
    fn store_bf16(self, value: Self::F32, to: &mut [u32; LANES / 2]) {
        unsafe {
            let packed = _mm256_packus_epi32(self.round_bf16_half(value.0), self.round_bf16_half(value.1));
            // Packing works on each half of the register, so its quarters come out as 0, 2, 1, 3.
            let ordered = _mm256_permute4x64_epi64::<0b11_01_10_00>(packed);
            _mm256_storeu_si256(to.as_mut_ptr().cast(), ordered);
        }
    }

    #[inline(always)]
    fn round_bf16(self, value: Self::F32) -> Self::F32 {
        self.low_bf16(Pair(self.round_bf16_half(value.0), self.round_bf16_half(value.1)))
    }

    #[inline(always)]
    fn load_bytes(self, from: &[u8; 4 * LANES]) -> Self::U8 {
        unsafe {
            Pair(_mm256_loadu_si256(from.as_ptr().cast()), _mm256_loadu_si256(from.as_ptr().add(32).cast()))
        }
    }

    #[inline(always)]
    fn flip_top_bits(self, a: Self::U8) -> Self::U8 {
        let mask = unsafe { _mm256_set1_epi8(i8::MIN) };
        unsafe { Pair(_mm256_xor_si256(a.0, mask), _mm256_xor_si256(a.1, mask)) }
    }

    #[inline(always)]
    fn low_nibbles(self, a: Self::U8) -> Self::U8 {
        let mask = unsafe { _mm256_set1_epi8(15) };
        unsafe { Pair(_mm256_and_si256(a.0, mask), _mm256_and_si256(a.1, mask)) }
    }

    #[inline(always)]
    fn high_nibbles(self, a: Self::U8) -> Self::U8 {
        unsafe { self.low_nibbles(Pair(_mm256_srli_epi16::<4>(a.0), _mm256_srli_epi16::<4>(a.1))) }
    }

    #[inline(always)]
    fn look_up(self, table: &[u8; 16], indices: Self::U8) -> Self::U8 {
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            Pair(_mm256_shuffle_epi8(table, indices.0), _mm256_shuffle_epi8(table, indices.1))
        }
    }

    #[inline(always)]
    fn or_bit_choice(self, a: Self::U8, plane: u64, unset: u8, set: u8) -> Self::U8 {
        Pair(
            self.bit_choice_half(a.0, plane as u32, unset, set),
            self.bit_choice_half(a.1, (plane >> 32) as u32, unset, set),
        )
    }

    #[inline(always)]
    fn dot4(self, accumulator: Self::I32, weights: Self::U8, activations: [i8; 4]) -> Self::I32 {
        let word = i32::from_le_bytes(activations.map(|value| value as u8));
        let activations = unsafe { _mm256_set1_epi32(word) };
        Pair(
            self.dot4_half(accumulator.0, weights.0, activations),
            self.dot4_half(accumulator.1, weights.1, activations),
        )
    }

    #[inline(always)]
    fn dot4_steps<const K: usize>(
        self,
        accumulator: Self::I32,
        weights: &[Self::U8; K],
        activations: &[[i8; 4]; K],
    ) -> Self::I32 {
        // Sums of pairs stay in 16 bits over all steps: one widening for all of them.
        let mut pairs = unsafe { [_mm256_setzero_si256(); 2] };
        for step in 0..K {
            let word = i32::from_le_bytes(activations[step].map(|value| value as u8));
            unsafe {
                let four = _mm256_set1_epi32(word);
                pairs[0] = _mm256_add_epi16(pairs[0], _mm256_maddubs_epi16(weights[step].0, four));
                pairs[1] = _mm256_add_epi16(pairs[1], _mm256_maddubs_epi16(weights[step].1, four));
            }
        }
        Pair(self.add_pairs_half(accumulator.0, pairs[0]), self.add_pairs_half(accumulator.1, pairs[1]))
    }

    #[inline(always)]
    fn dot4_wide(self, accumulator: Self::I32, weights: Self::U8, activations: [i8; 4]) -> Self::I32 {
        let word = i32::from_le_bytes(activations.map(|value| value as u8));
        let activations = unsafe { _mm256_set1_epi32(word) };
        Pair(
            self.dot4_wide_half(accumulator.0, weights.0, activations),
            self.dot4_wide_half(accumulator.1, weights.1, activations),
        )
    }

    #[inline(always)]
    fn store_bytes(self, value: Self::U8, to: &mut [u8; 4 * LANES]) {
        unsafe {
            _mm256_storeu_si256(to.as_mut_ptr().cast(), value.0);
            _mm256_storeu_si256(to.as_mut_ptr().add(32).cast(), value.1);
        }
    }

    #[inline(always)]
    fn or_pairs_of_step(self, a: Self::U8, pairs: Self::U8, step: usize) -> Self::U8 {
        Pair(self.or_pairs_half(a.0, pairs.0, step), self.or_pairs_half(a.1, pairs.1, step))
    }

    #[inline(always)]
    fn pairs_of_step(self, pairs: Self::U8, step: usize) -> Self::U8 {
        Pair(self.pairs_half(pairs.0, step), self.pairs_half(pairs.1, step))
    }

    #[inline(always)]
    fn mul_lanes(self, a: Self::U8, factors: &[u8; LANES]) -> Self::U8 {
        unsafe {
            let factors = _mm_loadu_si128(factors.as_ptr().cast());
            let high = _mm_srli_si128::<8>(factors);
            Pair(self.mul_lanes_half(a.0, factors), self.mul_lanes_half(a.1, high))
        }
    }

    #[inline(always)]
    fn largest_magnitude(self, low: Self::F32, high: Self::F32) -> f32 {
        unsafe {
            // Magnitudes are ordered as their bits are, with what is not a number above all.
            let (low, high) = (self.abs(low), self.abs(high));
            let bits = |a: __m256| _mm256_castps_si256(a);
            let eight = _mm256_max_epu32(
                _mm256_max_epu32(bits(low.0), bits(low.1)),
                _mm256_max_epu32(bits(high.0), bits(high.1)),
            );
            let four = _mm_max_epu32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256::<1>(eight));
            let two = _mm_max_epu32(four, _mm_shuffle_epi32::<0b0100_1110>(four));
            let one = _mm_max_epu32(two, _mm_shuffle_epi32::<0b1011_0001>(two));
            f32::from_bits(_mm_cvtsi128_si32(one) as u32)
        }
    }

    #[inline(always)]
    fn store_i8(self, value: Self::I32, to: &mut [i8; LANES]) {
        unsafe {
            // Packing stays inside each half of the register; the permutation puts the quarters in
            // order.
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(value.0, value.1));
            let bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words));
            _mm_storeu_si128(to.as_mut_ptr().cast(), bytes);
        }
    }

    #[inline(always)]
    fn sum_i32(self, value: Self::I32) -> i32 {
        unsafe {
            let eight = _mm256_add_epi32(value.0, value.1);
            let four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256::<1>(eight));
            let two = _mm_add_epi32(four, _mm_shuffle_epi32::<0b0100_1110>(four));
            _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<0b1011_0001>(two)))
        }
    }

    #[inline(always)]
    fn from_bits(self, bits: Self::I32) -> Self::F32 {
        unsafe { Pair(_mm256_castsi256_ps(bits.0), _mm256_castsi256_ps(bits.1)) }
    }

    #[inline(always)]
    fn call<K: Kernel>(self, kernel: K) -> K::Output {
        self.run(kernel)
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
    }
}
