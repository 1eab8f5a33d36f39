//! IQ4_NL: 32 nibbles that index a table of 16 values, and one f16 scale; element `i` is `d *
//! VALUES[q[i]]`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`, f16 |
//! | 2..18 | byte `i` holds element `i` (low nibble) and element `i + 16` (high nibble) |

use half::f16;

use super::row::max_encodable;
use super::split::{bytes_at, f16_bits, f16_value, nibbles, pack_nibbles};

/// Elements of a block.
pub const LEN: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 18;
/// Byte of the scale.
pub const SCALE_AT: usize = 0;
/// First byte of the quants.
pub const QUANTS_AT: usize = 2;
/// What the quants stand for: denser near zero, where weights are.
pub const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
/// Largest magnitude that [`encode`] takes.
pub const MAX_VALUE: f32 = max_encodable(100.0);

/// A block taken apart without loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked {
    /// The scale's f16 bits.
    pub d_bits: u16,
    /// Indices into [`VALUES`], in element order.
    pub quants: [u8; LEN],
}

impl Unpacked {
    /// The scale.
    pub fn d(&self) -> f32 {
        f16_value(self.d_bits)
    }
}

/// Takes a block apart.
pub fn unpack(block: &[u8; BYTES]) -> Unpacked {
    Unpacked { d_bits: f16_bits(block, SCALE_AT), quants: nibbles(bytes_at(block, QUANTS_AT)) }
}

/// The values of a block.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let parts = unpack(block);
    let d = parts.d();
    for (value, quant) in out.iter_mut().zip(parts.quants) {
        *value = d * f32::from(VALUES[usize::from(quant)]);
    }
}

/// Quantises finite values of at most [`MAX_VALUE`].
///
/// Scales are tried that bring the value of largest magnitude near either end of the table, and
/// each is replaced by the best one for the quants that it gives: the one of least squares,
/// weighted by the squares of the values. The scale of least error stays, and every value takes the
/// nearest entry of the table.
pub fn encode(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let peak = values.iter().fold(0.0f32, |peak, &x| if x.abs() > peak.abs() { x } else { peak });
    let mut best = (0.0, 0.0);
    if peak != 0.0 {
        for (end, step) in (-7..=7).flat_map(|step| [(-127, step), (113, step)]) {
            let fit = fitted(values, peak / (end + step) as f32);
            if fit.1 > best.1 {
                best = fit;
            }
        }
    }
    let d = f16::from_f32(best.0);
    block[..QUANTS_AT].copy_from_slice(&d.to_le_bytes());
    let quants = values.map(|x| nearest(f64::from(x) / f64::from(d.to_f32())));
    block[QUANTS_AT..].copy_from_slice(&pack_nibbles(&quants));
}

/// The best scale for the quants that `scale` gives, and how much of the squared error of zeros it
/// takes away.
fn fitted(values: &[f32; LEN], scale: f32) -> (f32, f64) {
    let (mut product, mut square) = (0.0f64, 0.0f64);
    for x in values.map(f64::from) {
        let quant = f64::from(VALUES[usize::from(nearest(x / f64::from(scale)))]);
        let weight = x * x;
        product += weight * quant * x;
        square += weight * quant * quant;
    }
    if square > 0.0 { ((product / square) as f32, product * product / square) } else { (0.0, 0.0) }
}

/// The index of the nearest value; the lower one of two that are as near. What is no number gives
/// the first.
fn nearest(x: f64) -> u8 {
    let above = |pair: &&[i8]| x > (f64::from(pair[0]) + f64::from(pair[1])) / 2.0;
    VALUES.windows(2).filter(above).count() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(values: &[f32; LEN]) -> [f32; LEN] {
        let (mut block, mut back) = ([0; BYTES], [0.0; LEN]);
        encode(values, &mut block);
        decode(&block, &mut back);
        back
    }

    #[test]
    fn what_the_type_can_hold_comes_back_exactly() {
        for scale in [1.0, -0.5, 0.03125] {
            let values: [f32; LEN] = std::array::from_fn(|i| scale * f32::from(VALUES[i * 7 % 16]));
            assert_eq!(round_trip(&values), values);
        }
    }

    #[test]
    fn zeros_stay_zeros_and_tiny_values_stay_finite() {
        assert!(round_trip(&[0.0; LEN]).iter().all(|&x| x == 0.0));
        assert!(round_trip(&[1e-30; LEN]).iter().all(|&x| x == 0.0));
    }

    #[test]
    fn the_nearest_value_is_the_nearest() {
        for tenth in -1400..1300 {
            let x = f64::from(tenth) / 10.0;
            let distance = |value: i8| (f64::from(value) - x).abs();
            let least = VALUES.into_iter().map(distance).fold(f64::INFINITY, f64::min);
            assert_eq!(distance(VALUES[usize::from(nearest(x))]), least, "{x}");
        }
        assert_eq!(nearest(f64::NAN), 0);
    }
}
