//! Portable lanes: the definition of what every other instruction set must give.

use half::{bf16, f16};

use super::{LANES, Simd};

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

impl Simd for Scalar {
    type F32 = [f32; LANES];
    type I32 = [i32; LANES];
    type U8 = [u8; 4 * LANES];

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

    #[inline(always)]
    fn load_f16(self, from: &[u16; LANES]) -> Self::F32 {
        map(*from, |bits| f16::from_bits(bits).to_f32_const())
    }

    #[inline(always)]
    fn store_f16(self, value: Self::F32, to: &mut [u16; LANES]) {
        *to = map(value, |number| f16::from_f32_const(number).to_bits());
    }

    #[inline(always)]
    fn load_bf16(self, from: &[u16; LANES]) -> Self::F32 {
        map(*from, |bits| bf16::from_bits(bits).to_f32_const())
    }

    #[inline(always)]
    fn load_u8(self, from: &[u8; LANES]) -> Self::F32 {
        map(*from, f32::from)
    }

    #[inline(always)]
    fn load_i8(self, from: &[i8; LANES]) -> Self::F32 {
        map(*from, f32::from)
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

    #[inline(always)]
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| a / b)
    }

    #[inline(always)]
    fn fma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32 {
        let mut out = c;
        for lane in 0..LANES {
            out[lane] = a[lane].mul_add(b[lane], c[lane]);
        }
        out
    }

    #[inline(always)]
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32 {
        zip(a, b, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn abs(self, a: Self::F32) -> Self::F32 {
        map(a, f32::abs)
    }

    #[inline(always)]
    fn select_gt(self, a: Self::F32, b: Self::F32, then: Self::F32, otherwise: Self::F32) -> Self::F32 {
        let mut out = otherwise;
        for lane in 0..LANES {
            if a[lane] > b[lane] {
                out[lane] = then[lane];
            }
        }
        out
    }

    #[inline(always)]
    fn round_to_i32(self, a: Self::F32) -> Self::I32 {
        map(a, |number| number.round_ties_even() as i32)
    }

    #[inline(always)]
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

    #[inline(always)]
    fn load_bytes(self, from: &[u8; 4 * LANES]) -> Self::U8 {
        *from
    }

    #[inline(always)]
    fn low_nibbles(self, a: Self::U8) -> Self::U8 {
        a.map(|byte| byte & 15)
    }

    #[inline(always)]
    fn high_nibbles(self, a: Self::U8) -> Self::U8 {
        a.map(|byte| byte >> 4)
    }

    #[inline(always)]
    fn or_bit_plane(self, a: Self::U8, plane: u64, value: u8) -> Self::U8 {
        let mut out = a;
        for (index, byte) in out.iter_mut().enumerate() {
            if plane >> index & 1 == 1 {
                *byte |= value;
            }
        }
        out
    }

    #[inline(always)]
    fn or_bit_pairs(self, a: Self::U8, pairs: &[u8; LANES]) -> Self::U8 {
        let mut out = a;
        for (index, byte) in out.iter_mut().enumerate() {
            *byte |= (pairs[index / 4] >> (2 * (index % 4)) & 3) << 4;
        }
        out
    }

    #[inline(always)]
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
    fn prefetch(self, _address: *const u8) {}
}
