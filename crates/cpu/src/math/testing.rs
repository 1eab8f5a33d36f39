//! Helpers of tests: errors in units in the last place, and reproducible numbers.

use crate::arch::LANES;

/// Distance of an f32 from the exact value, in the spacing of f32 there; a result below the normal
/// numbers may be zero.
pub(crate) fn ulps(got: f32, exact: f64) -> f64 {
    if exact.abs() > f64::from(f32::MAX) {
        return if f64::from(got) == f64::INFINITY.copysign(exact) || got.abs() == f32::MAX {
            0.0
        } else {
            f64::INFINITY
        };
    }
    if exact.abs() < f64::from(f32::MIN_POSITIVE) && got == 0.0 {
        return 0.0;
    }
    let exponent = exact.abs().log2().floor().max(-126.0);
    (f64::from(got) - exact).abs() / (exponent - 23.0).exp2()
}

/// Values through a function of sixteen lanes.
pub(crate) fn map(values: &[f32], function: impl FnOnce(&mut [[f32; LANES]])) -> Vec<f32> {
    let mut padded = values.to_vec();
    padded.resize(values.len().next_multiple_of(LANES), 0.0);
    function(padded.as_chunks_mut().0);
    padded.truncate(values.len());
    padded
}

/// Reproducible numbers (Steele, Lea and Flood, "SplitMix").
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    /// Sixty-four bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Evenly from -1 to 1.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    /// `n` numbers from -scale to scale.
    pub(crate) fn vec(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.unit() * scale).collect()
    }

    /// 0 .. n.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// The numbers 0 .. n in some order.
    pub(crate) fn order(&mut self, n: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..n as u32).collect();
        for index in (1..n).rev() {
            order.swap(index, self.below(index + 1));
        }
        order
    }
}
