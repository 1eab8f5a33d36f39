//! Shared by Q2_K, Q4_K and Q5_K: sub-blocks with a scale and a subtracted minimum each.

use super::split::f16_value;

/// Elements of a block.
const LEN: usize = 256;

/// A block of `SUBS` sub-blocks, taken apart without loss. Element `i` of sub-block `s` is
/// `(d * scales[s]) * q - (dmin * mins[s])`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Affine<const SUBS: usize> {
    /// The f16 bits of the scale of scales.
    pub d_bits: u16,
    /// The f16 bits of the scale of minimums.
    pub dmin_bits: u16,
    /// Scale of each sub-block, unsigned integers of the type's width.
    pub scales: [u8; SUBS],
    /// Minimum of each sub-block, of the same width; it is subtracted.
    pub mins: [u8; SUBS],
    /// Quants, unsigned integers of the type's width, in element order.
    pub quants: [u8; LEN],
}

impl<const SUBS: usize> Affine<SUBS> {
    /// The scale of scales.
    pub fn d(&self) -> f32 {
        f16_value(self.d_bits)
    }

    /// The scale of minimums.
    pub fn dmin(&self) -> f32 {
        f16_value(self.dmin_bits)
    }

    /// The values, one rounding for each operation of the formula.
    pub(super) fn values(&self, out: &mut [f32; LEN]) {
        let (d, dmin) = (self.d(), self.dmin());
        for (i, (value, quant)) in out.iter_mut().zip(self.quants).enumerate() {
            let sub = i / (LEN / SUBS);
            let scale = d * f32::from(self.scales[sub]);
            let min = dmin * f32::from(self.mins[sub]);
            *value = scale * f32::from(quant) - min;
        }
    }
}
