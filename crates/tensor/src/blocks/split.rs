//! Bit packing of the types with blocks of 32 elements.

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

/// The inverse of [`five_bits`]: nibbles, then fifth bits.
pub(super) fn pack_five_bits(quants: &[u8; 32]) -> ([u8; 16], [u8; 4]) {
    let high = quants.iter().enumerate().fold(0u32, |high, (i, quant)| high | u32::from(quant >> 4) << i);
    (pack_nibbles(&quants.map(|quant| quant & 0x0f)), high.to_le_bytes())
}

/// Splits 64 bytes into 256 quants of two bits: each half of 128 elements is four quarters of 32,
/// and quarter `k` takes bits `2k` and `2k + 1` of the half's 32 bytes.
pub(super) fn two_bits(packed: &[u8; 64]) -> [u8; 256] {
    std::array::from_fn(|i| packed[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3)
}

/// The inverse of [`two_bits`] for quants of which only the low two bits count.
pub(super) fn pack_two_bits(quants: &[u8; 256]) -> [u8; 64] {
    let mut packed = [0; 64];
    for (i, quant) in quants.iter().enumerate() {
        packed[i / 128 * 32 + i % 32] |= (quant & 3) << (i % 128 / 32 * 2);
    }
    packed
}

/// Byte `c` holds bit `bit` of elements `c`, `32 + c` and so on, from its low end on.
pub(super) fn pack_bit(quants: &[u8; 256], bit: u32) -> [u8; 32] {
    let mut packed = [0; 32];
    for (i, quant) in quants.iter().enumerate() {
        packed[i % 32] |= (quant >> bit & 1) << (i / 32);
    }
    packed
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
    fn other_quants_come_back() {
        let packed: [u8; 64] = std::array::from_fn(|i| (i * 37 + 11) as u8);
        assert_eq!(pack_two_bits(&two_bits(&packed)), packed);
        let (low, high) = (std::array::from_fn(|i| (i * 91 + 5) as u8), [0x12, 0x80, 0xff, 0x31]);
        assert_eq!(pack_five_bits(&five_bits(&low, high)), (low, high));
    }

    #[test]
    fn fifth_bits_follow_the_element() {
        let quants = five_bits(&[0; 16], [0x01, 0x80, 0, 0x80]);
        let set: Vec<usize> = (0..32).filter(|&i| quants[i] == 16).collect();
        assert_eq!(set, [0, 15, 31]);
    }
}
