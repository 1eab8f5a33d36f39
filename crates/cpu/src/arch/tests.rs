//! Every instruction set gives the bits of the portable one.

use super::*;

/// A small generator of bits (Steele, Lea and Flood, "SplitMix").
struct Bits(u64);

impl Bits {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A finite bf16 whose exponent field lies in a range.
    fn bf16(&mut self, exponents: std::ops::Range<u32>) -> u32 {
        let bits = self.next() as u32;
        let exponent = exponents.start + (bits >> 8) % (exponents.end - exponents.start);
        (bits & 1) << 15 | exponent << 7 | bits >> 1 & 0x7f
    }

    /// A pair of them in one word.
    fn pair(&mut self, exponents: std::ops::Range<u32>) -> u32 {
        self.bf16(exponents.clone()) | self.bf16(exponents) << 16
    }

    /// A finite f32 whose exponent field lies in a range.
    fn f32(&mut self, exponents: std::ops::Range<u32>) -> f32 {
        let bits = self.next();
        let exponent = exponents.start + (bits >> 40) as u32 % (exponents.end - exponents.start);
        f32::from_bits((bits as u32 & 0x807f_ffff) | exponent << 23)
    }
}

/// Pair dots of many lanes.
struct Dots<'a> {
    accumulators: &'a [[f32; LANES]],
    a: &'a [[u32; LANES]],
    b: &'a [[u32; LANES]],
    out: &'a mut [[f32; LANES]],
}

impl Kernel for Dots<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for (index, out) in self.out.iter_mut().enumerate() {
            let (a, b) = (simd.load_pairs(&self.a[index]), simd.load_pairs(&self.b[index]));
            simd.store(simd.dot_bf16(simd.load(&self.accumulators[index]), a, b), out);
        }
    }
}

fn assert_same_dots(accumulators: &[[f32; LANES]], a: &[[u32; LANES]], b: &[[u32; LANES]]) {
    let mut expected = vec![[0.0; LANES]; a.len()];
    Isa::Scalar.run(Dots { accumulators, a, b, out: &mut expected });
    for isa in Isa::available() {
        for pairs in [false, true] {
            let mut out = vec![[0.0; LANES]; a.len()];
            let dots = Dots { accumulators, a, b, out: &mut out };
            if pairs {
                isa.run_pairs(dots)
            } else {
                isa.run(dots)
            }
            for index in 0..a.len() {
                for lane in 0..LANES {
                    let (got, expected) = (out[index][lane], expected[index][lane]);
                    assert!(
                        got.to_bits() == expected.to_bits() || got.is_nan() && expected.is_nan(),
                        "{isa} (own instruction {pairs}): {:e} + {:#x} . {:#x} = {got:e}, portable {expected:e}",
                        accumulators[index][lane],
                        a[index][lane],
                        b[index][lane],
                    );
                }
            }
        }
    }
}

#[test]
fn pair_dots_are_equal_in_bits() {
    let mut bits = Bits(1);
    // All magnitudes; operands whose products lie around the smallest normal number; zeros,
    // subnormals, infinities.
    let ranges = [
        (0..255, 0..255),
        (100..150, 100..150),
        (50..80, 0..30),
        (60..68, 0..4),
        (0..2, 0..3),
        (240..256, 240..256),
    ];
    for (operands, sums) in ranges {
        for _ in 0..8 {
            let n = 4096;
            let a: Vec<_> = (0..n).map(|_| std::array::from_fn(|_| bits.pair(operands.clone()))).collect();
            let b: Vec<_> = (0..n).map(|_| std::array::from_fn(|_| bits.pair(operands.clone()))).collect();
            let sum: Vec<_> = (0..n).map(|_| std::array::from_fn(|_| bits.f32(sums.clone()))).collect();
            assert_same_dots(&sum, &a, &b);
        }
    }
}

#[test]
fn a_sum_that_rounding_lifts_to_the_smallest_normal_is_judged_after_rounding() {
    // 2^-126 - 2^-150 needs 24 bits and so stays below; as a subnormal it would round up to 2^-126.
    let half = (127 - 75) << 7;
    let minus = half | 1 << 15;
    let mut a = [[0; LANES]; 1];
    let mut b = [[0; LANES]; 1];
    for lane in 0..LANES {
        a[0][lane] = if lane % 2 == 0 { half << 16 } else { half };
        b[0][lane] = if lane % 2 == 0 { minus << 16 } else { minus };
    }
    assert_same_dots(&[[f32::MIN_POSITIVE; LANES]], &a, &b);
    assert_same_dots(&[[-f32::MIN_POSITIVE; LANES]], &a, &a);
    assert_same_dots(&[[f32::MIN_POSITIVE; LANES]], &a, &a);
}

/// Sums, maxima and bf16 roundings of many vectors.
struct Reduce<'a>(&'a [[f32; LANES]], &'a mut Vec<u32>);

impl Kernel for Reduce<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        for values in self.0 {
            let a = simd.load(values);
            let mut words = [0; LANES / 2];
            simd.store_bf16(a, &mut words);
            self.1.extend([simd.reduce_add(a).to_bits(), simd.reduce_max(a).to_bits()]);
            self.1.extend(words);
            let mut rounded = [0.0; LANES];
            simd.store(simd.round_bf16(a), &mut rounded);
            self.1.extend(rounded.map(f32::to_bits));
        }
    }
}

#[test]
fn reductions_and_bf16_rounding_are_equal_in_bits() {
    let mut bits = Bits(2);
    let mut values: Vec<[f32; LANES]> = Vec::new();
    for range in [0..255, 110..140, 0..3] {
        values.extend((0..4096).map(|_| std::array::from_fn(|_| bits.f32(range.clone()))));
    }
    let mut expected = Vec::new();
    Isa::Scalar.run(Reduce(&values, &mut expected));
    for isa in Isa::available() {
        let mut out = Vec::new();
        isa.run(Reduce(&values, &mut out));
        assert_eq!(out, expected, "{isa}");
    }
}
