//! Searches for the scales of quantised blocks: all of them minimise the sum of squared errors over
//! a few candidates.
//!
//! Given the integers, the best scale (and offset) is that of least squares; given the scale, the
//! best integers are the nearest ones. A search tries several scales near the one that spans the
//! values, takes the nearest integers of each and from them the scale of least squares.

use half::f16;

use super::affine::Affine;

/// Elements of a block of sub-blocks.
const LEN: usize = 256;
/// Scales are tried up to this many tenths of a level on both sides of the one that spans the
/// values.
const TENTHS: i32 = 9;

/// The scale `s` for which `s * q`, `q` in `low..=high`, comes close to the values; 0 where they
/// are all zero.
pub(super) fn fit_scale(values: &[f32], low: i8, high: i8) -> f32 {
    let peak = values.iter().fold(0.0f32, |peak, &x| if x.abs() > peak.abs() { x } else { peak });
    let (mut best, mut gain) = (0.0, 0.0);
    for end in [f32::from(low), f32::from(high)] {
        for tenths in -TENTHS..=TENTHS {
            let inverse = (end + tenths as f32 / 10.0) / peak;
            if !inverse.is_finite() {
                return best;
            }
            let (mut product, mut square) = (0.0, 0.0);
            for &x in values {
                let quant = nearest(x * inverse, low, high);
                product += x * quant;
                square += quant * quant;
            }
            // What the scale of least squares takes off the sum of squares.
            if product * product > gain * square {
                (best, gain) = (product / square, product * product / square);
            }
        }
    }
    best
}

/// Scale `s` and offset `o` for which `s * q + o`, `q` in `0..=levels`, comes close to the values.
/// The scale is not negative, the offset at most `highest_offset`.
pub(super) fn fit_affine(values: &[f32], levels: i8, highest_offset: f32) -> (f32, f32) {
    let low = values.iter().fold(highest_offset, |low, &x| low.min(x));
    let high = values.iter().fold(low, |high, &x| high.max(x));
    let (mut best, mut least) = ((0.0, low), f32::INFINITY);
    for tenths in -TENTHS..=TENTHS {
        let inverse = (f32::from(levels) + tenths as f32 / 10.0) / (high - low);
        if !inverse.is_finite() {
            break;
        }
        let mut found = (1.0 / inverse, low);
        // The second round starts from the first one's offset.
        for _ in 0..2 {
            found = least_squares(values, levels, found, highest_offset);
            let error = error_of(values, levels, found);
            if error < least {
                (best, least) = (found, error);
            }
        }
    }
    best
}

/// Scale and offset of least squares for the integers nearest under a scale and an offset.
fn least_squares(values: &[f32], levels: i8, (scale, offset): (f32, f32), highest_offset: f32) -> (f32, f32) {
    let inverse = 1.0 / scale;
    let (mut quants, mut squares, mut sum, mut products) = (0.0, 0.0, 0.0, 0.0);
    for &x in values {
        let quant = nearest((x - offset) * inverse, 0, levels);
        quants += quant;
        squares += quant * quant;
        sum += x;
        products += x * quant;
    }
    let count = values.len() as f32;
    let determinant = count * squares - quants * quants;
    if determinant <= 0.0 {
        return (scale, offset);
    }
    let fitted = (count * products - quants * sum) / determinant;
    let offset = (sum - fitted * quants) / count;
    let (fitted, offset) = if offset > highest_offset {
        ((products - highest_offset * quants) / squares, highest_offset)
    } else {
        (fitted, offset)
    };
    if fitted > 0.0 { (fitted, offset) } else { (scale, offset) }
}

/// The sum of squared errors under a scale and an offset.
fn error_of(values: &[f32], levels: i8, (scale, offset): (f32, f32)) -> f32 {
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let error = |x: f32| x - offset - scale * nearest((x - offset) * inverse, 0, levels);
    values.iter().map(|&x| error(x) * error(x)).sum()
}

/// Quantises a block to quants of `0..=levels`, sub-scales and sub-minimums of `0..=sub_levels`.
pub(super) fn affine_block<const SUBS: usize>(
    values: &[f32; LEN],
    levels: i8,
    sub_levels: i8,
) -> Affine<SUBS> {
    let len = LEN / SUBS;
    let fits: [(f32, f32); SUBS] =
        std::array::from_fn(|sub| fit_affine(&values[sub * len..(sub + 1) * len], levels, 0.0));
    let largest = fits.iter().fold((0.0f32, 0.0f32), |(scale, min), fit| (scale.max(fit.0), min.max(-fit.1)));
    let (d_bits, d) = stored(largest.0 / f32::from(sub_levels));
    let (dmin_bits, dmin) = stored(largest.1 / f32::from(sub_levels));
    let mut block = Affine { d_bits, dmin_bits, scales: [0; SUBS], mins: [0; SUBS], quants: [0; LEN] };
    for (sub, (scale, offset)) in fits.into_iter().enumerate() {
        let values = &values[sub * len..(sub + 1) * len];
        let mut least = f32::INFINITY;
        for sub_scale in neighbours(scale, d, 0, sub_levels) {
            for sub_min in neighbours(-offset, dmin, 0, sub_levels) {
                let error = error_of(values, levels, (d * sub_scale, -(dmin * sub_min)));
                if error < least {
                    least = error;
                    (block.scales[sub], block.mins[sub]) = (sub_scale as u8, sub_min as u8);
                }
            }
        }
        let (scale, min) = (d * f32::from(block.scales[sub]), dmin * f32::from(block.mins[sub]));
        let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
        for (quant, x) in block.quants[sub * len..].iter_mut().zip(values) {
            *quant = nearest((x + min) * inverse, 0, levels) as u8;
        }
    }
    block
}

/// A block of sub-blocks with a signed scale each.
pub(super) struct Scaled<const SUBS: usize> {
    pub(super) d_bits: u16,
    pub(super) scales: [i8; SUBS],
    /// Quants with `-low` added.
    pub(super) quants: [u8; LEN],
}

/// Quantises a block to quants of `low..=-low - 1` and sub-scales of `sub_low..=-sub_low - 1`.
pub(super) fn scaled_block<const SUBS: usize>(values: &[f32; LEN], low: i8, sub_low: i8) -> Scaled<SUBS> {
    let (len, high) = (LEN / SUBS, -(low + 1));
    let fits: [f32; SUBS] =
        std::array::from_fn(|sub| fit_scale(&values[sub * len..(sub + 1) * len], low, high));
    let peak = fits.iter().fold(0.0f32, |peak, &scale| if scale.abs() > peak.abs() { scale } else { peak });
    // The largest sub-scale takes the end that reaches further.
    let (d_bits, d) = stored(peak / f32::from(sub_low));
    let mut block = Scaled { d_bits, scales: [0; SUBS], quants: [0; LEN] };
    for (sub, scale) in fits.into_iter().enumerate() {
        let values = &values[sub * len..(sub + 1) * len];
        let (mut best, mut least) = (0.0, f32::INFINITY);
        for sub_scale in neighbours(scale, d, sub_low, -(sub_low + 1)) {
            let step = d * sub_scale;
            let error = |x: f32| x - step * nearest_multiple(x, step, low, high);
            let error = values.iter().map(|&x| error(x) * error(x)).sum();
            if error < least {
                (best, least) = (sub_scale, error);
            }
        }
        block.scales[sub] = best as i8;
        for (quant, &x) in block.quants[sub * len..].iter_mut().zip(values) {
            *quant = (nearest_multiple(x, d * best, low, high) - f32::from(low)) as u8;
        }
    }
    block
}

/// The whole number nearest to `value`, ties to even, inside `low..=high`.
pub(super) fn nearest(value: f32, low: i8, high: i8) -> f32 {
    value.round_ties_even().clamp(f32::from(low), f32::from(high))
}

/// How many steps come nearest to `value`; 0 for a step of 0.
fn nearest_multiple(value: f32, step: f32, low: i8, high: i8) -> f32 {
    nearest(if step == 0.0 { 0.0 } else { value / step }, low, high)
}

/// The f16 nearest to a scale, as bits and value; those that are too large become the largest.
pub(super) fn stored(scale: f32) -> (u16, f32) {
    let largest = f16::MAX.to_f32();
    let number = f16::from_f32(scale.clamp(-largest, largest));
    (number.to_bits(), number.to_f32())
}

/// The number of units nearest to `value`, and those beside it.
fn neighbours(value: f32, unit: f32, low: i8, high: i8) -> [f32; 3] {
    let middle = nearest_multiple(value, unit, low, high);
    [middle, middle - 1.0, middle + 1.0].map(|number| nearest(number, low, high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiples_are_found_exactly() {
        let values: Vec<f32> = (-4..4).map(|q| q as f32 * -0.375).collect();
        assert_eq!(fit_scale(&values, -4, 3), -0.375);
        let values: Vec<f32> = (0..16).map(|q| q as f32 * 0.25 - 1.5).collect();
        assert_eq!(fit_affine(&values, 15, 0.0), (0.25, -1.5));
    }

    #[test]
    fn offsets_stay_below_their_bound() {
        let values: Vec<f32> = (0..32).map(|i| 5.0 + (i * 7 % 32) as f32 / 31.0).collect();
        assert_eq!(fit_affine(&values, 15, 0.0).1, 0.0);
        assert!(fit_affine(&values, 15, f32::INFINITY).1 > 4.9);
    }

    #[test]
    fn nothing_and_almost_nothing_have_a_finite_scale() {
        for x in [0.0, 1e-45, -1e-40, 3.0] {
            assert!(fit_scale(&[x; 16], -32, 31).is_finite());
            let (scale, offset) = fit_affine(&[x; 16], 3, 0.0);
            assert!(scale.is_finite() && offset.is_finite());
        }
    }
}
