//! RoPE frequencies with linear scaling, YaRN and per-pair divisors applied.

use minfer_graph::{F64Bits, RopeSpec};

use crate::hyperparams::{RopeHyperparams, RopeScaling, Yarn};

/// Frequencies and magnitude of a model's rotation.
pub fn spec(rope: &RopeHyperparams) -> RopeSpec {
    let frequencies = (0..rope.dims / 2).map(|pair| F64Bits::from(frequency(rope, pair))).collect();
    RopeSpec { pairs: rope.pairs, frequencies, magnitude: (magnitude(rope) as f32).into() }
}

/// Radians per position of one pair.
fn frequency(rope: &RopeHyperparams, pair: u32) -> f64 {
    let divisor = rope.factors.as_ref().map_or(1.0, |factors| f64::from(factors[pair as usize]));
    let trained = rope.base.powf(-2.0 * f64::from(pair) / f64::from(rope.dims)) / divisor;
    match rope.scaling {
        RopeScaling::None => trained,
        RopeScaling::Linear { factor } => trained / factor,
        RopeScaling::Yarn(yarn) => {
            let kept = yarn.ext_factor * kept_share(&yarn, rope, pair);
            trained / yarn.factor * (1.0 - kept) + trained * kept
        }
    }
}

/// 1 for pairs that turn fast enough to keep their frequency, 0 for those that are fully
/// interpolated, a ramp between (the paper's gamma, over the pair's index).
fn kept_share(yarn: &Yarn, rope: &RopeHyperparams, pair: u32) -> f64 {
    let low = pair_of_turns(yarn, rope, yarn.beta_fast).floor().max(0.0);
    let high = pair_of_turns(yarn, rope, yarn.beta_slow).ceil().min(f64::from(rope.dims) - 1.0);
    let ramp = (f64::from(pair) - low) / (high - low).max(0.001);
    1.0 - ramp.clamp(0.0, 1.0)
}

/// The pair, as a fraction, that makes `turns` full turns in the original context.
fn pair_of_turns(yarn: &Yarn, rope: &RopeHyperparams, turns: f64) -> f64 {
    let wavelength = f64::from(yarn.original_context) / (turns * std::f64::consts::TAU);
    f64::from(rope.dims) * wavelength.ln() / (2.0 * rope.base.ln())
}

/// YaRN's attention temperature, as a factor on rotated elements of both queries and keys.
fn magnitude(rope: &RopeHyperparams) -> f64 {
    match rope.scaling {
        RopeScaling::Yarn(yarn) if yarn.ext_factor != 0.0 && yarn.factor > 1.0 => {
            rope.magnitude * (1.0 + 0.1 * yarn.factor.ln())
        }
        _ => rope.magnitude,
    }
}

#[cfg(test)]
mod tests {
    use minfer_graph::RopePairs;

    use super::*;

    fn model(dims: u32, base: f64, scaling: RopeScaling) -> RopeHyperparams {
        RopeHyperparams {
            pairs: RopePairs::Halves,
            dims,
            base,
            scaling,
            original_context: 512,
            factors: None,
            long: false,
            context_factors: None,
            magnitude: 1.0,
            file_magnitude: 1.0,
        }
    }

    /// Compares chosen pairs with figures that a script outside this project computed from the
    /// papers' formulas.
    #[track_caller]
    fn check(rope: &RopeHyperparams, wanted: &[(usize, f64)], magnitude: f64) {
        let spec = spec(rope);
        assert_eq!(spec.rotated_dims(), rope.dims);
        for &(pair, wanted) in wanted {
            let found = spec.frequencies[pair].get();
            assert!((found / wanted - 1.0).abs() < 1e-13, "pair {pair}: {found} is not {wanted}");
        }
        assert_eq!(spec.magnitude.get(), magnitude as f32);
    }

    #[test]
    fn plain_frequencies_are_powers_of_the_base() {
        let wanted = [(0, 1.0), (1, 0.316_227_766_016_837_94), (4, 0.01), (7, 0.000_316_227_766_016_837_94)];
        check(&model(16, 1e4, RopeScaling::None), &wanted, 1.0);
    }

    #[test]
    fn linear_scaling_divides_every_frequency() {
        check(&model(16, 1e4, RopeScaling::linear(2.0)), &[(0, 0.5), (2, 0.05), (6, 0.0005)], 1.0);
        assert_eq!(RopeScaling::linear(1.0), RopeScaling::None);
    }

    #[test]
    fn factors_divide_their_own_pair_before_scaling() {
        let mut rope = model(4, 100.0, RopeScaling::linear(2.0));
        rope.factors = Some([4.0, 0.5].into());
        check(&rope, &[(0, 0.125), (1, 0.1)], 1.0);
    }

    #[test]
    fn yarn_keeps_fast_pairs_and_interpolates_slow_ones() {
        let tiny = Yarn { factor: 4.0, ..Yarn::usual(64) };
        let wanted = [
            (0, 1.0),
            (1, 0.237_170_824_512_628_47),
            (2, 0.05),
            (3, 0.007_905_694_150_420_948),
            (7, 7.905_694_150_420_948e-5),
        ];
        check(&model(16, 1e4, RopeScaling::Yarn(tiny)), &wanted, 1.138_629_436_111_989);
        let qwen = Yarn { factor: 4.0, ..Yarn::usual(32_768) };
        let wanted = [
            (0, 1.0),
            (23, 0.006_978_305_848_598_663),
            (24, 0.005_375_321_490_790_102),
            (31, 0.000_802_959_727_545_230_2),
            (40, 4.445_698_525_097_307e-5),
            (41, 3.582_531_425_592_407e-5),
            (63, 3.102_344_401_879_299e-7),
        ];
        check(&model(128, 1e6, RopeScaling::Yarn(qwen)), &wanted, 1.138_629_436_111_989);
    }

    #[test]
    fn every_setting_of_yarn_counts() {
        let yarn =
            Yarn { factor: 4.0, ext_factor: 0.5, beta_fast: 16.0, beta_slow: 2.0, ..Yarn::usual(32_768) };
        let wanted = [
            (0, 0.625),
            (27, 0.001_738_884_240_487_302_8),
            (37, 8.495_520_822_356_399e-5),
            (63, 3.102_344_401_879_299e-7),
        ];
        let mut rope = model(128, 1e6, RopeScaling::Yarn(yarn));
        rope.magnitude = 1.19;
        check(&rope, &wanted, 1.19 * 1.138_629_436_111_989);
        // Interpolation alone leaves magnitudes as they are.
        rope.scaling = RopeScaling::Yarn(Yarn { ext_factor: 0.0, ..yarn });
        check(&rope, &[(0, 0.25)], 1.19);
        rope.scaling = RopeScaling::Yarn(Yarn { factor: 1.0, ..yarn });
        check(&rope, &[(0, 1.0)], 1.19);
    }
}
