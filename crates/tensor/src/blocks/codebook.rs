//! Shared by the codebook types: weights are indices into at most sixteen small integers.
//!
//! Every value is `scale * integer` and exact in f32: a scale is an f16 times a power of two times
//! a sub-scale of at most six bits, an integer has at most seven.

use super::split::f16_value;

/// Elements of a superblock.
pub const LEN: usize = 256;
/// Elements that share a sub-scale; types with one for 32 elements repeat it.
pub const SUB_LEN: usize = 16;
/// Sub-scales of a superblock.
pub const SUBS: usize = LEN / SUB_LEN;

/// What the indices and sub-scales of a type stand for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Codebook {
    /// The integer of each index; indices that do not occur stand for 0.
    pub values: [i8; 16],
    /// A power of two: what a sub-scale is counted in, apart from the block's scale.
    pub unit: f32,
}

/// A superblock taken apart without loss: element `i` is `d * unit * scales[i / 16] *
/// values[indices[i]]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked {
    /// The f16 bits of the scale of scales.
    pub d_bits: u16,
    /// Sub-scale of every 16 elements.
    pub scales: [i8; SUBS],
    /// Indices into the codebook, 0..=15, in element order.
    pub indices: [u8; LEN],
}

impl Unpacked {
    /// All zero.
    pub(super) const ZERO: Unpacked = Unpacked { d_bits: 0, scales: [0; SUBS], indices: [0; LEN] };

    /// The scale of scales.
    pub fn d(&self) -> f32 {
        f16_value(self.d_bits)
    }

    /// The values under a codebook.
    pub(super) fn decode(&self, codebook: &Codebook, out: &mut [f32; LEN]) {
        let unit = self.d() * codebook.unit;
        for (i, (value, index)) in out.iter_mut().zip(self.indices).enumerate() {
            let scale = unit * f32::from(self.scales[i / SUB_LEN]);
            *value = scale * f32::from(codebook.values[usize::from(index)]);
        }
    }

    /// Puts a row of a grid at some elements: digits, with bit `sign_bit` set where the element's
    /// bit of `signs` is.
    pub(super) fn put_row<const ROW: usize>(
        &mut self,
        at: usize,
        digits: &[u8; ROW],
        signs: u8,
        sign_bit: u32,
    ) {
        for (place, (index, digit)) in self.indices[at..at + ROW].iter_mut().zip(digits).enumerate() {
            *index = digit | (signs >> place & 1) << sign_bit;
        }
    }
}

/// Odd sub-scales `2 n + 1` out of nibbles, of which a byte holds two, the low one first; each
/// covers `repeat` sub-blocks.
pub(super) fn odd_scales(nibbles: &[u8], repeat: usize) -> [i8; SUBS] {
    std::array::from_fn(|sub| {
        let at = sub / repeat;
        (2 * (nibbles[at / 2] >> (4 * (at % 2)) & 15) + 1) as i8
    })
}

/// Magnitudes, then the same negated, each from a multiple of half of the table on.
pub(super) const fn signed<const N: usize>(magnitudes: [i8; N], half: usize) -> [i8; 16] {
    let mut values = [0; 16];
    let mut at = 0;
    while at < N {
        values[at] = magnitudes[at];
        values[half + at] = -magnitudes[at];
        at += 1;
    }
    values
}
