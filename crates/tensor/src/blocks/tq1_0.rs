//! TQ1_0: 256 ternary quants, five to a byte, and one f16 scale; element `i` is `d * (q[i] - 1)`.
//!
//! A byte stands for a fraction `byte / 256`, whose first digits to base 3 are quants (see
//! [`unpack`]).
//!
//! | bytes | field |
//! | --- | --- |
//! | 0..32 | digit `n` of byte `c` is element `32 n + c`, five digits |
//! | 32..48 | digit `n` of byte `c` is element `160 + 16 n + c`, five digits |
//! | 48..52 | digit `n` of byte `c` is element `240 + 4 n + c`, four digits |
//! | 52..54 | `d`, f16 |

use super::split::{f16_bits, f16_value};

/// Elements of a block.
pub const LEN: usize = 256;
/// Bytes of a block.
pub const BYTES: usize = 54;
/// First byte of the quants.
pub const QUANTS_AT: usize = 0;
/// Byte of the scale.
pub const SCALE_AT: usize = 52;
/// What is subtracted from a raw quant.
pub const BIAS: i8 = 1;

/// A block taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked {
    /// The scale's f16 bits.
    pub d_bits: u16,
    /// Raw quants, 0..=2, in element order.
    pub quants: [u8; LEN],
}

impl Unpacked {
    /// The scale.
    pub fn d(&self) -> f32 {
        f16_value(self.d_bits)
    }
}

/// Takes a block apart. What follows digit `n` of a byte is `byte * 3^n` modulo 256; the digit
/// itself is what three times that carries over 256.
pub fn unpack(block: &[u8; BYTES]) -> Unpacked {
    let quants = std::array::from_fn(|i| {
        let (byte, digit) = match i {
            0..160 => (i % 32, i / 32),
            160..240 => (32 + i % 16, (i - 160) / 16),
            _ => (48 + i % 4, (i - 240) / 4),
        };
        let rest = block[QUANTS_AT + byte].wrapping_mul([1, 3, 9, 27, 81][digit]);
        ((u16::from(rest) * 3) >> 8) as u8
    });
    Unpacked { d_bits: f16_bits(block, SCALE_AT), quants }
}

/// The values of a block.
pub fn decode(block: &[u8; BYTES], out: &mut [f32; LEN]) {
    let parts = unpack(block);
    let d = parts.d();
    for (value, quant) in out.iter_mut().zip(parts.quants) {
        *value = d * f32::from(quant as i8 - BIAS);
    }
}
