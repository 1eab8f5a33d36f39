//! Bit plumbing shared by the 32-element types.

/// The f16 bits stored little-endian at byte `at`.
pub(super) fn f16_bits<const BYTES: usize>(block: &[u8; BYTES], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

/// The value of stored f16 bits.
pub(super) fn f16_value(bits: u16) -> f32 {
    half::f16::from_bits(bits).to_f32()
}

/// Splits 16 bytes into 32 quants: low nibbles are elements 0..16, high nibbles elements 16..32.
pub(super) fn nibbles(packed: &[u8; 16]) -> [u8; 32] {
    std::array::from_fn(|i| if i < 16 { packed[i] & 0x0f } else { packed[i - 16] >> 4 })
}

/// The inverse of [`nibbles`].
pub(super) fn pack_nibbles(quants: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|i| quants[i] | (quants[i + 16] << 4))
}

/// Like [`nibbles`], with bit `i` of `high` as the fifth bit of element `i`.
pub(super) fn five_bits(packed: &[u8; 16], high: [u8; 4]) -> [u8; 32] {
    let high = u32::from_le_bytes(high);
    let low = nibbles(packed);
    std::array::from_fn(|i| low[i] | (((high >> i) & 1) as u8) << 4)
}

/// `N` bytes of a block from byte `at`.
pub(super) fn bytes_at<const N: usize, const BYTES: usize>(block: &[u8; BYTES], at: usize) -> &[u8; N] {
    block[at..].first_chunk().expect("a field lies inside its block")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nibbles_come_back() {
        let packed: [u8; 16] = std::array::from_fn(|i| (i * 37 + 11) as u8);
        assert_eq!(pack_nibbles(&nibbles(&packed)), packed);
        assert_eq!(nibbles(&packed)[0], 11);
        assert_eq!(nibbles(&packed)[16], 0);
    }

    #[test]
    fn fifth_bits_follow_the_element() {
        let quants = five_bits(&[0; 16], [0x01, 0x80, 0, 0x80]);
        let set: Vec<usize> = (0..32).filter(|&i| quants[i] == 16).collect();
        assert_eq!(set, [0, 15, 31]);
    }
}
