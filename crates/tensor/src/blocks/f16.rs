//! F16: IEEE 754 binary16, little-endian.

use half::f16;

/// Elements of a block.
pub const LEN: usize = 1;
/// Bytes of a block.
pub const BYTES: usize = 2;

/// The value of an element; exact.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    *out = [f16::from_le_bytes(*block).to_f32()];
}

/// Stores an element, rounded to nearest, ties to even; magnitudes from 65520 up become infinite.
pub fn encode(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    *block = f16::from_f32(values[0]).to_le_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back() {
        for bits in 0..=u16::MAX {
            let mut value = [0.0];
            decode(&bits.to_le_bytes(), &mut value);
            if value[0].is_nan() {
                continue;
            }
            let mut block = [0; 2];
            encode(&value, &mut block);
            assert_eq!(u16::from_le_bytes(block), bits);
        }
    }
}
