//! The exponential and what is made of it, sixteen lanes at a time.

use minfer_graph::Activation;

use crate::arch::{LANES, Simd};

/// Below this the result would leave the normal numbers and is zero instead.
const LOWEST: f32 = -87.336_54;
/// Above this the result is infinite.
const HIGHEST: f32 = 88.722_83;
const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 as the sum of two f32. A multiple of the first up to 128 subtracts exactly from its
/// neighbourhood.
const LN_2_HIGH: f32 = std::f32::consts::LN_2;
const LN_2_LOW: f32 = -1.904_654_2e-9;
/// Minimax coefficients of `(e^r - 1 - r) / r^2` on `|r| <= ln(2) / 2`, lowest power first;
/// relative error of `e^r` 3.1e-9.
#[allow(clippy::excessive_precision, reason = "nine digits name an f32")]
const EXP: [f32; 5] = [0.499_999_94, 0.166_665_21, 0.041_668_39, 0.008_368_745, 0.001_381_454_1];
/// Coefficients of `(tanh x / x - 1) / x^2` in `x^2` for `|x| <= 0.625`, lowest power first
/// (Moshier, "Cephes", tanhf).
#[allow(clippy::excessive_precision, reason = "nine digits name an f32")]
const TANH: [f32; 5] = [-0.333_332_82, 0.133_314_42, -0.053_739_715, 0.020_639_09, -0.005_704_987_3];
/// Above this tanh is computed from the exponential.
const TANH_POLYNOMIAL_END: f32 = 0.625;

/// e^x to 1 ulp; zero where the result would be below the normal numbers, infinite above 88.7228;
/// not a number for such. Exactly 1 for zero.
#[inline(always)]
pub(crate) fn exp<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    let infinite = simd.splat(f32::INFINITY);
    simd.select_gt(x, simd.splat(HIGHEST), infinite, exp_of_nonpositive(simd, x))
}

/// [`exp`] without the check for results that are too large: the same bits up to x = 88.7228.
#[inline(always)]
pub(crate) fn exp_of_nonpositive<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    let exponent = simd.round_to_i32(simd.mul(x, simd.splat(LOG2_E)));
    let n = simd.to_f32(exponent);
    let r = simd.fma(n, simd.splat(-LN_2_HIGH), x);
    let r = simd.fma(n, simd.splat(-LN_2_LOW), r);
    let mut sum = simd.splat(EXP[4]);
    for coefficient in [EXP[3], EXP[2], EXP[1], EXP[0], 1.0, 1.0] {
        sum = simd.fma(sum, r, simd.splat(coefficient));
    }
    let scaled = simd.scale_by_power_of_two(sum, exponent);
    simd.select_gt(simd.splat(LOWEST), x, simd.splat(0.0), scaled)
}

/// tanh x to 2 ulp, with the sign of x.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    let (one, two) = (simd.splat(1.0), simd.splat(2.0));
    let magnitude = simd.abs(x);
    let square = simd.mul(x, x);
    let mut sum = simd.splat(TANH[4]);
    for coefficient in [TANH[3], TANH[2], TANH[1], TANH[0]] {
        sum = simd.fma(sum, square, simd.splat(coefficient));
    }
    let small = simd.fma(simd.mul(square, sum), x, x);
    let power = exp(simd, simd.mul(two, magnitude));
    let large = simd.sub(one, simd.div(two, simd.add(power, one)));
    let signed = simd.select_gt(simd.splat(0.0), x, simd.sub(simd.splat(0.0), large), large);
    simd.select_gt(magnitude, simd.splat(TANH_POLYNOMIAL_END), signed, small)
}

/// The activation of each lane.
#[inline(always)]
pub(crate) fn activate<S: Simd>(simd: S, kind: Activation, x: S::F32) -> S::F32 {
    match kind {
        Activation::Silu => logistic_product(simd, x, simd.sub(simd.splat(0.0), x)),
        Activation::GeluTanh => gelu_tanh(simd, x),
        Activation::GeluHalf => {
            let rounded = round_f16(simd, gelu_tanh(simd, round_f16(simd, x)));
            let not_low = simd.select_gt(simd.splat(-BELOW_TEN), x, simd.splat(0.0), rounded);
            simd.select_gt(x, simd.splat(BELOW_TEN), x, not_low)
        }
    }
}

/// `x / (1 + e^exponent)`: silu for `-x`.
#[inline(always)]
fn logistic_product<S: Simd>(simd: S, x: S::F32, exponent: S::F32) -> S::F32 {
    simd.div(x, simd.add(simd.splat(1.0), exp(simd, exponent)))
}

/// The tanh form of GELU written as `x / (1 + e^-2u)` with `u = sqrt(2 / pi) (x + 0.044715 x^3)`,
/// the same function without the cancellation in `1 + tanh u`.
#[inline(always)]
fn gelu_tanh<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    let (linear, cubic) = (simd.splat(GELU_LINEAR), simd.splat(GELU_CUBIC));
    logistic_product(simd, x, simd.mul(x, simd.fma(simd.mul(x, x), cubic, linear)))
}

/// Rounded to f16, to nearest even.
#[inline(always)]
fn round_f16<S: Simd>(simd: S, x: S::F32) -> S::F32 {
    let mut halves = [0; LANES];
    simd.store_f16(x, &mut halves);
    simd.load_f16(&halves)
}

/// The largest number below 10: above it GELU is its argument, below its negative zero.
const BELOW_TEN: f32 = 10.0_f32.next_down();
/// -2 sqrt(2 / pi).
#[allow(clippy::excessive_precision, reason = "nine digits name an f32")]
const GELU_LINEAR: f32 = -1.595_769_1;
/// -2 sqrt(2 / pi) * 0.044715.
const GELU_CUBIC: f32 = -0.071_354_814;

#[cfg(test)]
mod tests {
    use super::super::testing::{map, ulps};
    use super::*;
    use crate::arch::{Isa, Kernel};

    struct Apply<'a>(&'a str, &'a mut [[f32; LANES]]);

    impl Kernel for Apply<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, simd: S) {
            for values in self.1 {
                let x = simd.load(values);
                let y = match self.0 {
                    "exp" => exp(simd, x),
                    "exp_of_nonpositive" => exp_of_nonpositive(simd, x),
                    "tanh" => tanh(simd, x),
                    "silu" => activate(simd, Activation::Silu, x),
                    "gelu" => activate(simd, Activation::GeluTanh, x),
                    "gelu_half" => activate(simd, Activation::GeluHalf, x),
                    name => panic!("{name}"),
                };
                simd.store(y, values);
            }
        }
    }

    fn apply(isa: Isa, name: &str, values: &[f32]) -> Vec<f32> {
        map(values, |lanes| isa.run(Apply(name, lanes)))
    }

    /// Every 97th f32 of either sign, and the ends.
    fn all() -> Vec<f32> {
        let mut values: Vec<f32> = (0..=u32::MAX).step_by(99_991).map(f32::from_bits).collect();
        values.extend([0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::from_bits(0x7fff_ffff)]);
        for end in [LOWEST, HIGHEST, TANH_POLYNOMIAL_END, -TANH_POLYNOMIAL_END, 1.0, -1.0] {
            let bits = end.to_bits();
            values.extend((bits - 2000..bits + 2000).map(f32::from_bits));
        }
        values.extend((-1_000_000..1_000_000).map(|i| i as f32 * 1e-4));
        values
    }

    fn assert_close(name: &str, limit: f64, truth: impl Fn(f64) -> f64) {
        let values = all();
        let expected = apply(Isa::Scalar, name, &values);
        let mut worst = (0.0, 0.0);
        for (&x, &y) in values.iter().zip(&expected) {
            let exact = truth(f64::from(x));
            if exact.is_nan() {
                assert!(y.is_nan(), "{name}({x:e}) = {y:e}");
                continue;
            }
            let error = ulps(y, exact);
            if error > worst.0 {
                worst = (error, x);
            }
        }
        assert!(worst.0 <= limit, "{name}: {} ulp at {:e}", worst.0, worst.1);
        for isa in Isa::available() {
            let got = apply(isa, name, &values);
            for index in 0..values.len() {
                let (a, b) = (got[index], expected[index]);
                assert!(
                    a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
                    "{isa} {name}({:e})",
                    values[index]
                );
            }
        }
    }

    #[test]
    fn errors_stay_below_what_is_stated() {
        assert_close("exp", 1.0, f64::exp);
        assert_close("tanh", 2.0, f64::tanh);
        // Below -88.7 the quotient is by infinity.
        assert_close("silu", 3.0, |x| match x {
            f64::NEG_INFINITY => f64::NAN,
            _ if x < -f64::from(HIGHEST) => -0.0,
            _ => x / (1.0 + (-x).exp()),
        });
    }

    #[test]
    fn gelu_is_close_to_the_formula() {
        let values: Vec<f32> = (-200_000..200_000).map(|i| i as f32 * 1e-4).collect();
        let got = apply(Isa::Scalar, "gelu", &values);
        for (&x, &y) in values.iter().zip(&got) {
            let x = f64::from(x);
            let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            let exact = x / (1.0 + (-2.0 * u).exp());
            let limit = 2e-7 * (1.0 + (2.0 * u).abs()) * exact.abs() + 1e-36;
            assert!((f64::from(y) - exact).abs() <= limit, "gelu({x}) = {y}, exact {exact}");
            let formula = 0.5 * x * (1.0 + u.tanh());
            assert!((f64::from(y) - formula).abs() <= 2e-6 * x.abs(), "gelu({x}) = {y}, formula {formula}");
        }
        for isa in Isa::available() {
            assert_eq!(apply(isa, "gelu", &values), got, "{isa}");
        }
    }

    #[test]
    fn gelu_half_rounds_argument_and_result() {
        let half = |x: f64| f64::from(half::f16::from_f64(x));
        let values: Vec<f32> =
            (-120_000..120_000).map(|i| i as f32 * 1e-4).chain([10.0, 1e30, -1e30]).collect();
        let got = apply(Isa::Scalar, "gelu_half", &values);
        for (&x, &y) in values.iter().zip(&got) {
            let argument = half(f64::from(x));
            let u = (2.0 / std::f64::consts::PI).sqrt() * (argument + 0.044715 * argument.powi(3));
            let exact = if x >= 10.0 { f64::from(x) } else { argument / (1.0 + (-2.0 * u).exp()) };
            if x.abs() >= 10.0 {
                assert_eq!(y, x.max(0.0));
            } else {
                // The result is an f16, and one of the two around the exact value where that is
                // close to their middle.
                assert_eq!(f64::from(y), half(f64::from(y)), "gelu_half({x})");
                let limit = exact.abs() * (2f64.powi(-11) + 1e-5) + 2f64.powi(-25);
                assert!((f64::from(y) - exact).abs() <= limit, "gelu_half({x}) = {y}, exact {exact}");
            }
        }
        for isa in Isa::available() {
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&apply(isa, "gelu_half", &values)), bits(&got), "{isa}");
        }
    }

    #[test]
    fn the_short_exponential_is_the_long_one() {
        let values: Vec<f32> = all().into_iter().filter(|&x| x <= 88.0).collect();
        assert_eq!(apply(Isa::best(), "exp_of_nonpositive", &values), apply(Isa::best(), "exp", &values));
        let ends = [0.0, -0.0, f32::NEG_INFINITY, -1e30, -88.0];
        let bits: Vec<u32> = apply(Isa::best(), "exp", &ends).iter().map(|y| y.to_bits()).collect();
        assert_eq!(bits, [1.0f32.to_bits(), 1.0f32.to_bits(), 0, 0, 0]);
    }
}
