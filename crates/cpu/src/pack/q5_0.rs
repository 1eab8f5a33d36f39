//! Q5_0 in panels: nibbles, planes of fifth bits, then 16 scales.

use minfer_tensor::blocks::q5_0;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::codebook::Codebook;
use super::format::{Format, STEPS, Terms, bytes_at, f16_bits};
use super::planes::FiveBits;
use crate::arch::{LANES, Simd};

pub(crate) struct Q5_0;

/// 32 columns of 16 rows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Block {
    quants: FiveBits,
    scales: [u16; LANES],
}

impl Format for Q5_0 {
    type File = [u8; q5_0::BYTES];
    type Block = Block;
    type Kernels = Self;
    const RUNS: usize = 1;
    const ZERO: Self::File = [0; q5_0::BYTES];
    const TERMS: usize = 1;

    #[inline(always)]
    fn pack(rows: &[&Self::File; LANES], block: &mut Block) {
        let fifths = rows.map(|row| bytes_at(row, q5_0::HIGH_AT));
        block.quants.put(fifths, rows.map(|row| bytes_at(row, q5_0::QUANTS_AT)));
        for (lane, row) in rows.iter().enumerate() {
            block.scales[lane] = f16_bits(row, q5_0::SCALE_AT);
        }
    }

    #[inline(always)]
    fn weights<S: Simd>(simd: S, _codebook: &Codebook, block: &Block, _run: usize) -> [S::U8; STEPS] {
        block.quants.weights(simd)
    }

    #[inline(always)]
    fn terms<S: Simd>(simd: S, _codebook: &Codebook, block: &Block, _run: usize) -> Terms<S> {
        let zero = simd.splat(0.0);
        [simd.load_f16(&block.scales), zero, zero]
    }

    fn value([scale, ..]: [f32; 3], _column: usize, weight: u8) -> f32 {
        scale * f32::from(weight as i8 - q5_0::BIAS)
    }
}
