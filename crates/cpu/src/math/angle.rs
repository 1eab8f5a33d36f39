//! Sine and cosine of large angles in f64, without fused operations and without a library.

/// pi / 2 in pieces of 27, 27, 27 and 53 bits: multiples of the first three up to 2^26 are exact.
const HALF_PI: [f64; 4] = [
    1.570_796_325_802_803,
    9.920_935_739_593_517e-10,
    5.721_188_709_663_575e-18,
    1.644_625_693_632_425_8e-26,
];
/// Minimax coefficients of (sin r - r) / r^3 in r^2 on |r| <= pi / 4 (Sun Microsystems, "fdlibm",
/// k_sin.c).
#[allow(clippy::excessive_precision, reason = "the digits as published")]
const SIN: [f64; 6] = [
    -1.666_666_666_666_663_243_48e-1,
    8.333_333_333_322_489_461_24e-3,
    -1.984_126_982_985_794_931_34e-4,
    2.755_731_370_707_006_767_89e-6,
    -2.505_076_025_340_686_341_95e-8,
    1.589_690_995_211_550_102_21e-10,
];
/// Minimax coefficients of (cos r - 1 + r^2 / 2) / r^4 in r^2 on |r| <= pi / 4 (fdlibm, k_cos.c).
#[allow(clippy::excessive_precision, reason = "the digits as published")]
const COS: [f64; 6] = [
    4.166_666_666_666_660_190_37e-2,
    -1.388_888_888_887_410_957_49e-3,
    2.480_158_728_947_672_941_78e-5,
    -2.755_731_435_139_066_330_35e-7,
    2.087_572_321_298_174_827_90e-9,
    -1.135_964_755_778_819_482_65e-11,
];

/// (sin x, cos x), within 1e-16 + 1e-15 of their magnitude for |x| up to 1e8. Beyond that the angle
/// loses digits as its own spacing grows; the result stays the same everywhere.
pub(crate) fn sin_cos(x: f64) -> (f64, f64) {
    let n = (x * std::f64::consts::FRAC_2_PI).round_ties_even();
    let (r, low) = reduce(x, n);
    let (sin, cos) = (sin_of_small(r, low), cos_of_small(r, low));
    match (n as i64).rem_euclid(4) {
        0 => (sin, cos),
        1 => (cos, -sin),
        2 => (-sin, -cos),
        _ => (-cos, sin),
    }
}

/// x - n * pi / 2 as the sum of two f64 (Cody and Waite, "Software Manual for the Elementary
/// Functions").
fn reduce(x: f64, n: f64) -> (f64, f64) {
    let first = x - n * HALF_PI[0];
    let (second, low_second) = difference(first, n * HALF_PI[1]);
    let (third, low_third) = difference(second, n * HALF_PI[2]);
    let low = low_second + low_third - n * HALF_PI[3];
    let sum = third + low;
    (sum, (third - sum) + low)
}

/// a - b and what its rounding lost (Knuth's two-sum).
fn difference(a: f64, b: f64) -> (f64, f64) {
    let d = a - b;
    let subtracted = a - d;
    let kept = d + subtracted;
    (d, (a - kept) + (subtracted - b))
}

fn polynomial(coefficients: &[f64; 6], z: f64) -> f64 {
    let mut sum = coefficients[5];
    for &coefficient in coefficients[..5].iter().rev() {
        sum = sum * z + coefficient;
    }
    sum
}

/// sin(r + low) for |r| up to pi / 4.
fn sin_of_small(r: f64, low: f64) -> f64 {
    let z = r * r;
    // The derivative, cos r, to the digits that `low` can show.
    let correction = low * (1.0 - 0.5 * z);
    r + (z * r * polynomial(&SIN, z) + correction)
}

/// cos(r + low) for |r| up to pi / 4.
fn cos_of_small(r: f64, low: f64) -> f64 {
    let z = r * r;
    let half = 0.5 * z;
    let w = 1.0 - half;
    w + (((1.0 - w) - half) + (z * z * polynomial(&COS, z) - r * low))
}

#[cfg(test)]
mod tests {
    use super::super::testing::Numbers;
    use super::*;

    #[test]
    fn sine_and_cosine_match_the_standard_library() {
        let mut numbers = Numbers(7);
        for scale in [1e-3, 1.0, 10.0, 1e3, 1e5, 1e6, 1e8] {
            for _ in 0..200_000 {
                let x = (numbers.bits() >> 11) as f64 / (1u64 << 53) as f64 * 2.0 * scale - scale;
                let (sin, cos) = sin_cos(x);
                assert!((sin - x.sin()).abs() <= 1e-16 + 1e-15 * x.sin().abs(), "sin {x}: {sin} {}", x.sin());
                assert!((cos - x.cos()).abs() <= 1e-16 + 1e-15 * x.cos().abs(), "cos {x}: {cos} {}", x.cos());
                assert_eq!(sin as f32, x.sin() as f32, "sin {x}");
                assert_eq!(cos as f32, x.cos() as f32, "cos {x}");
            }
        }
    }

    #[test]
    fn angles_next_to_multiples_of_a_quarter_turn_keep_their_digits() {
        for n in (1..2_000_000u64).step_by(37).chain([1 << 20, 1 << 25]) {
            let x = n as f64 * std::f64::consts::FRAC_PI_2;
            for x in [x, x.next_down(), x.next_up()] {
                let (sin, cos) = sin_cos(x);
                assert!((sin - x.sin()).abs() <= 1e-15 * x.sin().abs(), "sin {x}: {sin:e} {:e}", x.sin());
                assert!((cos - x.cos()).abs() <= 1e-15 * x.cos().abs(), "cos {x}: {cos:e} {:e}", x.cos());
            }
        }
        assert_eq!(sin_cos(0.0), (0.0, 1.0));
    }
}
