//! Q4_0: 32 unsigned nibbles and one f16 scale; element `i` is `d * (q[i] - 8)`.
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
/// What is subtracted from a raw quant.
pub const BIAS: i8 = 8;
/// Largest magnitude that [`encode`] takes.
pub const MAX_VALUE: f32 = max_encodable(8.0);

/// A block taken apart without loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked {
    /// The scale's f16 bits.
    pub d_bits: u16,
    /// Raw quants, 0..=15, in element order.
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
        *value = d * f32::from(quant as i8 - BIAS);
    }
}

/// Quantises finite values of at most [`MAX_VALUE`]: the value of largest magnitude (the first of
/// equals) becomes quant 0 and so sets the sign of the scale; the others round to nearest, ties up.
pub fn encode(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let peak = values.iter().fold(0.0f32, |peak, &x| if x.abs() > peak.abs() { x } else { peak });
    let d = peak / -8.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let quants = values.map(|x| ((x * inverse + 8.5) as u8).min(15));
    block[..QUANTS_AT].copy_from_slice(&f16::from_f32(d).to_le_bytes());
    block[QUANTS_AT..].copy_from_slice(&pack_nibbles(&quants));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_comes_back_exactly_and_zero_stays_zero() {
        let mut values = [0.0; LEN];
        values[9] = 4.0;
        values[20] = -3.5;
        let (mut block, mut back) = ([0; BYTES], [0.0; LEN]);
        encode(&values, &mut block);
        decode(&block, &mut back);
        assert_eq!(back, values);
        encode(&[0.0; LEN], &mut block);
        decode(&block, &mut back);
        assert_eq!(back, [0.0; LEN]);
    }
}
