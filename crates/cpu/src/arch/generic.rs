//! Portable lanes: the definition of what every other instruction set must give.
//!
//! Operations that are long in portable code stay functions: kernels unroll them by the hundred.

use half::{bf16, f16};

use super::{Kernel, LANES, Simd};

/// Portable code; present everywhere.
#[derive(Clone, Copy)]
pub(crate) struct Scalar;

#[inline(always)]
fn map<T: Copy, U: Copy + Default>(a: [T; LANES], function: impl Fn(T) -> U) -> [U; LANES] {
    let mut out = [U::default(); LANES];
    for lane in 0..LANES {
        out[lane] = function(a[lane]);
    }
    out
}

#[inline(always)]
fn zip(a: [f32; LANES], b: [f32; LANES], function: impl Fn(f32, f32) -> f32) -> [f32; LANES] {
    let mut out = [0.0; LANES];
    for lane in 0..LANES {
        out[lane] = function(a[lane], b[lane]);
    }
    out
}

/// Lanes `i` and `i + 8` joined, then `i` and `i + 4`, and so on.
#[inline(always)]
fn reduce(mut a: [f32; LANES], function: impl Fn(f32, f32) -> f32) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            a[lane] = function(a[lane], a[lane + half]);
        }
        half /= 2;
    }
    a[0]
}

impl Simd for Scalar {
    type F32 = [f32; LANES];
    type I32 = [i32; LANES];
    type U8 = [u8; 4 * LANES];
    const WIDE: bool = false;
    const SCALAR: bool = true;

    #[inline(never)]
    fn outlined<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }

    #[inline(always)]
    fn splat(self, value: f32) -> Self::F32 {
        [value; LANES]
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::F32 {
        *from
    }

    #[inline(always)]
    fn store(self, value: Self::F32, to: &mut [f32; LANES]) {
        *to = value;
    }

    #[inline(never)]
    fn load_f16(self, from: &[u16; LANES]) -> Self::F32 {
        map(*from, |bits| f16::from_bits(bits).to_f32_const())
    }

    #[inline(never)]
    fn store_f16(self, value: Self::F32, to: &mut [u16; LANES]) {
        *to = map(value, |number| f16::from_f32_const(number).to_bits());
    }

    #[inline(never)]
    fn load_bf16(self, from: &[u16; LANES]) -> Self::F32 {
        map(*from, |bits| bf16::from_bits(bits).to_f32_const())
    }

    #[inline(never)]
    fn load_u8(self, from: &[u8; LANES]) -> Self::F32 {
        map(*from, f32::from)
    }

    #[inline(never)]
    fn load_i8(self, from: &[i8; LANES]) -> Self::F32 {
        map(*from, f32::from)
    }

    #[inline(never)]
    fn load_e4m3(self, from: &[u8; LANES]) -> Self::F32 {
        map(*from, |byte| f16::from_bits(u16::from(byte) << 7).to_f32_const() * 128.0)
    }

    #[inline(always)]
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| a - b)
    }

    #[inline(always)]
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| a * b)
    }

    #[inline(never)]
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| a / b)
    }

    #[inline(never)]
    fn fma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        let mut out = c;
        for lane in 0..LANES {
            out[lane] = a[lane].mul_add(b[lane], c[lane]);
        }
        out
    }

    #[inline(never)]
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| if a > b { a } else { b })
    }

    #[inline(never)]
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn abs(self, a: Self::F32) -> Self::F32 {
        map(a, f32::abs)
    }

    #[inline(never)]
    fn select_gt(self, a: Self::F32, b: Self::F32, then: Self::F32, otherwise: Self::F32) -> Self::F32 {
        let mut out = otherwise;
        for lane in 0..LANES {
            if a[lane] > b[lane] {
                out[lane] = then[lane];
            }
        }
        out
    }

    #[inline(never)]
    fn round_to_i32(self, a: Self::F32) -> Self::I32 {
        map(a, |number| number.round_ties_even() as i32)
    }

    #[inline(never)]
    fn scale_by_power_of_two(self, value: Self::F32, exponent: Self::I32) -> Self::F32 {
        let mut out = value;
        for lane in 0..LANES {
            out[lane] =
                f32::from_bits((value[lane].to_bits() as i32).wrapping_add(exponent[lane] << 23) as u32);
        }
        out
    }

    #[inline(always)]
    fn splat_i32(self, value: i32) -> Self::I32 {
        [value; LANES]
    }

    #[inline(always)]
    fn store_i32(self, value: Self::I32, to: &mut [i32; LANES]) {
        *to = value;
    }

    #[inline(always)]
    fn to_f32(self, a: Self::I32) -> Self::F32 {
        map(a, |number| number as f32)
    }

    #[inline(never)]
    fn reduce_add(self, a: Self::F32) -> f32 {
        reduce(a, |a, b| a + b)
    }

    #[inline(never)]
    fn reduce_max(self, a: Self::F32) -> f32 {
        reduce(a, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn load_pairs(self, from: &[u32; LANES]) -> Self::I32 {
        map(*from, |word| word as i32)
    }

    #[inline(always)]
    fn low_bf16(self, pairs: Self::I32) -> Self::F32 {
        map(pairs, |word| f32::from_bits((word as u32) << 16))
    }

    #[inline(always)]
    fn high_bf16(self, pairs: Self::I32) -> Self::F32 {
        map(pairs, |word| f32::from_bits(word as u32 & 0xffff_0000))
    }

    #[inline(never)]
    fn store_bf16(self, value: Self::F32, to: &mut [u32; LANES / 2]) {
        let bits = map(value, |number| u32::from(bf16::from_f32_const(number).to_bits()));
        for (index, word) in to.iter_mut().enumerate() {
            *word = bits[2 * index] | bits[2 * index + 1] << 16;
        }
    }

    #[inline(never)]
    fn round_bf16(self, value: Self::F32) -> Self::F32 {
        map(value, |number| bf16::from_f32_const(number).to_f32_const())
    }

    #[inline(always)]
    fn load_bytes(self, from: &[u8; 4 * LANES]) -> Self::U8 {
        *from
    }

    #[inline(never)]
    fn flip_top_bits(self, a: Self::U8) -> Self::U8 {
        a.map(|byte| byte ^ 0x80)
    }

    #[inline(never)]
    fn low_nibbles(self, a: Self::U8) -> Self::U8 {
        a.map(|byte| byte & 15)
    }

    #[inline(never)]
    fn high_nibbles(self, a: Self::U8) -> Self::U8 {
        a.map(|byte| byte >> 4)
    }

    #[inline(never)]
    fn look_up(self, table: &[u8; 16], indices: Self::U8) -> Self::U8 {
        indices.map(|index| table[usize::from(index & 15)])
    }

    #[inline(never)]
    fn or_bit_choice(self, a: Self::U8, plane: u64, unset: u8, set: u8) -> Self::U8 {
        let mut out = a;
        for (index, byte) in out.iter_mut().enumerate() {
            *byte |= if plane >> index & 1 == 1 { set } else { unset };
        }
        out
    }

    #[inline(never)]
    fn dot4(self, accumulator: Self::I32, weights: Self::U8, activations: [i8; 4]) -> Self::I32 {
        let mut out = accumulator;
        for lane in 0..LANES {
            for step in 0..4 {
                out[lane] += i32::from(weights[4 * lane + step]) * i32::from(activations[step]);
            }
        }
        out
    }

    #[inline(always)]
    fn dot4_wide(self, accumulator: Self::I32, weights: Self::U8, activations: [i8; 4]) -> Self::I32 {
        self.dot4(accumulator, weights, activations)
    }

    #[inline(always)]
    fn store_bytes(self, value: Self::U8, to: &mut [u8; 4 * LANES]) {
        *to = value;
    }

    #[inline(never)]
    fn or_pairs_of_step(self, a: Self::U8, pairs: Self::U8, step: usize) -> Self::U8 {
        let mut out = a;
        for (byte, pair) in out.iter_mut().zip(pairs) {
            *byte |= (pair >> (2 * step) & 3) << 4;
        }
        out
    }

    #[inline(never)]
    fn pairs_of_step(self, pairs: Self::U8, step: usize) -> Self::U8 {
        pairs.map(|byte| byte >> (2 * step) & 3)
    }

    #[inline(never)]
    fn mul_lanes(self, a: Self::U8, factors: &[u8; LANES]) -> Self::U8 {
        std::array::from_fn(|index| a[index].wrapping_mul(factors[index / 4]))
    }

    #[inline(never)]
    fn largest_magnitude(self, low: Self::F32, high: Self::F32) -> f32 {
        // Magnitudes are ordered as their bits are, with what is not a number above all.
        let largest = low
            .into_iter()
            .chain(high)
            .map(|number| number.abs().to_bits())
            .fold(0, |a, b| if a > b { a } else { b });
        f32::from_bits(largest)
    }

    #[inline(never)]
    fn store_i8(self, value: Self::I32, to: &mut [i8; LANES]) {
        *to = map(value, |number| number as i8);
    }

    #[inline(never)]
    fn sum_i32(self, value: Self::I32) -> i32 {
        value.into_iter().sum()
    }

    #[inline(always)]
    fn from_bits(self, bits: Self::I32) -> Self::F32 {
        map(bits, |bits| f32::from_bits(bits as u32))
    }

    #[inline(always)]
    fn call<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }

    #[inline(always)]
    fn prefetch(self, _address: *const u8) {}
}
