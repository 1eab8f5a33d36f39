//! The exponential function with one order of operations on every machine.

/// Virtual lanes of a reduction over the vocabulary: element `i` belongs to lane `i % LANES`.
pub(super) const LANES: usize = 16;

/// `e^x` for `x <= 0`; 0 below -87, where the result would soon be denormal. Within 2 ulp.
///
/// Cody-Waite reduction to `|r| <= ln(2) / 2` and the polynomial of `expf` in Moshier's Cephes
/// library; multiplications and additions are separate, so that the bits do not depend on whether
/// the machine has a fused one.
#[inline]
pub(super) fn exp(x: f32) -> f32 {
    /// Adding it rounds to a whole number, to nearest even.
    const ROUND: f32 = 12_582_912.0;
    let clamped = if x > -87.0 { x } else { -87.0 };
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    let r = clamped - whole * 0.693_359_4;
    let r = r - whole * -2.121_944_4e-4;
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_2e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    let p = p * (r * r) + r + 1.0;
    let power = f32::from_bits((shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127)) << 23);
    // A mask, because a branch would keep the compiler from working on many lanes at once.
    let mask = u32::from(x > -87.0).wrapping_neg();
    f32::from_bits((p * power).to_bits() & mask)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_to_the_true_value() {
        for step in 0..870_000u32 {
            let x = -(step as f32) * 1e-4;
            let truth = f64::from(x).exp();
            let error = (f64::from(exp(x)) - truth).abs() / truth;
            assert!(error < 2.0 * f64::from(f32::EPSILON), "{x}: off by {error:e}");
        }
    }

    #[test]
    fn its_ends() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-88.0), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
    }
}
