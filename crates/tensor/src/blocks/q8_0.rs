//! Q8_0: 32 signed bytes and one f16 scale; element `i` is `d * q[i]`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..2 | `d`, f16 |
//! | 2..34 | byte `i` is element `i`, i8 |

use half::f16;

use super::row::max_encodable;
use super::split::{bytes_at, f16_bits, f16_value};

/// Elements of a block.
pub const LEN: usize = 32;
/// Bytes of a block.
pub const BYTES: usize = 34;
/// Byte of the scale.
pub const SCALE_AT: usize = 0;
/// First byte of the quants.
pub const QUANTS_AT: usize = 2;
/// Largest magnitude that [`encode`] takes.
pub const MAX_VALUE: f32 = max_encodable(127.0);

/// A block taken apart without loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked {
    /// The scale's f16 bits.
    pub d_bits: u16,
    /// Quants in element order.
    pub quants: [i8; LEN],
}

impl Unpacked {
    /// The scale.
    pub fn d(&self) -> f32 {
        f16_value(self.d_bits)
    }
}

/// Takes a block apart.
pub fn unpack(block: &[u8; BYTES]) -> Unpacked {
    let quants: &[u8; LEN] = bytes_at(block, QUANTS_AT);
    Unpacked { d_bits: f16_bits(block, SCALE_AT), quants: quants.map(|byte| byte as i8) }
}

/// The values of a block.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let parts = unpack(block);
    let d = parts.d();
    for (value, quant) in out.iter_mut().zip(parts.quants) {
        *value = d * f32::from(quant);
    }
}

/// Quantises finite values of at most [`MAX_VALUE`]: the largest magnitude becomes 127, the others
/// round to nearest, ties away from zero.
pub fn encode(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let peak = values.iter().fold(0.0f32, |peak, x| peak.max(x.abs()));
    let d = peak / 127.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    block[..QUANTS_AT].copy_from_slice(&f16::from_f32(d).to_le_bytes());
    for (byte, x) in block[QUANTS_AT..].iter_mut().zip(values) {
        *byte = (x * inverse).round() as i8 as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_come_back_exactly() {
        let values: [f32; LEN] = std::array::from_fn(|i| (i as f32 - 16.0) * 7.0);
        let mut values = values;
        values[0] = -127.0;
        let (mut block, mut back) = ([0; BYTES], [0.0; LEN]);
        encode(&values, &mut block);
        decode(&block, &mut back);
        assert_eq!(back, values);
    }
}
