//! Q8_K: 256 signed bytes and one f32 scale; element `i` is `d * q[i]`.
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..4 | `d`, f32 |
//! | 4..260 | byte `i` is element `i`, i8 |
//! | 260..292 | sums of the quants in runs of 16, i16; decoding takes no notice of them |

use super::fit::nearest;
use super::split::bytes_at;

/// Elements of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 292;
/// Byte of the scale.
pub const SCALE_AT: usize = 0;
/// First byte of the quants.
pub const QUANTS_AT: usize = 4;
/// First byte of the sums.
pub const SUMS_AT: usize = 260;
/// Elements of a sum.
pub const SUM_LEN: usize = 16;
/// Largest magnitude that [`encode`] takes.
pub const MAX_VALUE: f32 = f32::MAX;

/// Scale and quants of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked {
    /// The scale's f32 bits.
    pub d_bits: u32,
    /// Quants in element order.
    pub quants: [i8; LEN],
}

impl Unpacked {
    /// The scale.
    pub fn d(&self) -> f32 {
        f32::from_bits(self.d_bits)
    }
}

/// Takes a block apart.
pub fn unpack(block: &[u8; BYTES]) -> Unpacked {
    let quants: &[u8; LEN] = bytes_at(block, QUANTS_AT);
    Unpacked { d_bits: u32::from_le_bytes(*bytes_at(block, SCALE_AT)), quants: quants.map(|byte| byte as i8) }
}

/// The values of a block.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let parts = unpack(block);
    let d = parts.d();
    for (value, quant) in out.iter_mut().zip(parts.quants) {
        *value = d * f32::from(quant);
    }
}

/// Quantises finite values: the one of largest magnitude becomes 127 or -127, the others round to
/// nearest, ties to even.
pub fn encode(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    let d = values.iter().fold(0.0f32, |peak, x| peak.max(x.abs())) / 127.0;
    let quants = values.map(|x| if d == 0.0 { 0 } else { nearest(x / d, -127, 127) as i8 });
    block[SCALE_AT..QUANTS_AT].copy_from_slice(&d.to_le_bytes());
    block[QUANTS_AT..SUMS_AT].copy_from_slice(&quants.map(|quant| quant as u8));
    let sums = block[SUMS_AT..].as_chunks_mut::<2>().0;
    for (sum, quants) in sums.iter_mut().zip(quants.as_chunks::<SUM_LEN>().0) {
        *sum = quants.iter().map(|&quant| i16::from(quant)).sum::<i16>().to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_the_scaled_bytes_whatever_the_sums_say() {
        let mut block = [0xa5; BYTES];
        block[SCALE_AT..QUANTS_AT].copy_from_slice(&0.3f32.to_le_bytes());
        for (i, byte) in block[QUANTS_AT..SUMS_AT].iter_mut().enumerate() {
            *byte = i as u8;
        }
        let mut values = [0.0; LEN];
        decode(&block, &mut values);
        for (i, value) in values.into_iter().enumerate() {
            let quant = if i < 128 { i as f32 } else { i as f32 - 256.0 };
            assert_eq!(value, 0.3f32 * quant, "element {i}");
        }
    }
}
