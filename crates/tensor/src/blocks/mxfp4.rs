//! MXFP4: 32 floating-point numbers of 4 bits under one power of two (OCP Microscaling Formats,
//! version 1.0).
//!
//! Element `i` is `2^(e - 128) * VALUES[q[i]]`: the table holds the numbers doubled, so that they
//! are integers.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0 | `e`, the exponent |
//! | 1..17 | byte `i` holds element `i` (low nibble) and element `i + 16` (high nibble) |

use super::split::{bytes_at, nibbles, pack_nibbles};

/// Elements of a block.
pub const LEN: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 17;
/// Byte of the exponent.
pub const EXPONENT_AT: usize = 0;
/// First byte of the quants.
pub const QUANTS_AT: usize = 1;
/// What the quants stand for: twice the numbers with one sign bit, two bits of exponent and one of
/// fraction.
pub const VALUES: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
/// Largest magnitude that [`encode`] takes.
pub const MAX_VALUE: f32 = f32::MAX;

/// A block taken apart without loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked {
    /// The exponent.
    pub exponent: u8,
    /// Indices into [`VALUES`], in element order.
    pub quants: [u8; LEN],
}

impl Unpacked {
    /// The scale, `2^(exponent - 128)`; the two smallest are below the normal numbers.
    pub fn d(&self) -> f32 {
        scale(self.exponent)
    }
}

/// `2^(exponent - 128)`.
pub fn scale(exponent: u8) -> f32 {
    match exponent {
        0 | 1 => f32::from_bits(0x0020_0000 << exponent),
        _ => f32::from_bits(u32::from(exponent - 1) << 23),
    }
}

/// Takes a block apart.
pub fn unpack(block: &[u8; BYTES]) -> Unpacked {
    Unpacked { exponent: block[EXPONENT_AT], quants: nibbles(bytes_at(block, QUANTS_AT)) }
}

/// The values of a block.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let parts = unpack(block);
    let d = parts.d();
    for (value, quant) in out.iter_mut().zip(parts.quants) {
        *value = d * f32::from(VALUES[usize::from(quant)]);
    }
}

/// Quantises finite values: the largest magnitude takes the largest exponent of a number, and every
/// value the nearest number, the one of smaller index where two are as near.
pub fn encode(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let peak = values.iter().fold(0.0f32, |peak, x| peak.max(x.abs()));
    // The floor of the peak's logarithm is its exponent, and the largest number is 1.5 * 2^2. A
    // negative one wraps around.
    let exponent = if peak > 0.0 { (exponent_of(peak) - 2 + 127) as u8 } else { 0 };
    let d = scale(exponent);
    let quants = values.map(|x| {
        let error = |quant: u8| (d * f32::from(VALUES[usize::from(quant)]) - x).abs();
        (1..16).fold(0, |best, quant| if error(quant) < error(best) { quant } else { best })
    });
    block[EXPONENT_AT] = exponent;
    block[QUANTS_AT..].copy_from_slice(&pack_nibbles(&quants));
}

/// The exponent `e` of a positive number in `2^e ..= 2^(e + 1)`.
fn exponent_of(number: f32) -> i32 {
    match number.to_bits() >> 23 {
        0 => -118 - number.to_bits().leading_zeros() as i32,
        exponent => exponent as i32 - 127,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_type_can_hold_comes_back_exactly() {
        for d in [1.0, 0.25, 1024.0] {
            let values: [f32; LEN] = std::array::from_fn(|i| d * f32::from(VALUES[i % 16]));
            let (mut block, mut back) = ([0; BYTES], [0.0; LEN]);
            encode(&values, &mut block);
            decode(&block, &mut back);
            assert_eq!(back, values);
        }
    }

    #[test]
    fn exponents_below_the_normal_numbers() {
        for exponent in -149..=127 {
            assert_eq!(exponent_of(2.0f64.powi(exponent) as f32), exponent);
        }
        assert_eq!([scale(0), scale(1), scale(2)].map(f64::from), [-128, -127, -126].map(|e| 2.0f64.powi(e)));
    }
}
