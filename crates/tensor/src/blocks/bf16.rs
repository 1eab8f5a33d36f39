//! BF16: the upper half of binary32, little-endian.

use half::bf16;

/// Elements of a block.
pub const LEN: usize = 1;
/// Bytes of a block.
pub const BYTES: usize = 2;

/// The value of an element; exact.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    *out = [f32::from_bits(u32::from(u16::from_le_bytes(*block)) << 16)];
}

/// Stores an element, rounded to nearest, ties to even; NaN becomes quiet.
pub fn encode(values: &[f32; LEN], block: &mut [u8; BYTES]) {
    *block = bf16::from_f32(values[0]).to_le_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_even() {
        let round = |bits: u32| {
            let mut block = [0; 2];
            encode(&[f32::from_bits(bits)], &mut block);
            u16::from_le_bytes(block)
        };
        assert_eq!(round(0x3f80_8000), 0x3f80);
        assert_eq!(round(0x3f81_8000), 0x3f82);
        assert_eq!(round(0x3f80_8001), 0x3f81);
        assert_eq!(round(0x7f80_0001), 0x7fc0);
        assert_eq!(round(0xff80_0000), 0xff80);
    }
}
