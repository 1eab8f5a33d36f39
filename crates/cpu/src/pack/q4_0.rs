//! Q4_0 in panels: nibbles, then 16 scales.

use minfer_tensor::blocks::q4_0;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::codebook::Codebook;
use super::format::{Format, Nibbles, STEPS, Terms, bytes_at, f16_bits, nibbles, put_nibbles};
use crate::arch::{LANES, Simd};

pub(crate) struct Q4_0;

/// 32 columns of 16 rows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Block {
    quants: Nibbles,
    scales: [u16; LANES],
}

impl Format for Q4_0 {
    type File = [u8; q4_0::BYTES];
    type Block = Block;
    type Kernels = Self;
    const RUNS: usize = 1;
    const ZERO: Self::File = [0; q4_0::BYTES];
    const TERMS: usize = 1;

    #[inline(always)]
    fn pack(rows: &[&Self::File; LANES], block: &mut Block) {
        for (lane, row) in rows.iter().enumerate() {
            put_nibbles(&mut block.quants, lane, bytes_at(row, q4_0::QUANTS_AT));
            block.scales[lane] = f16_bits(row, q4_0::SCALE_AT);
        }
    }

    #[inline(always)]
    fn weights<S: Simd>(simd: S, _codebook: &Codebook, block: &Block, _run: usize) -> [S::U8; STEPS] {
        nibbles(simd, &block.quants)
    }

    #[inline(always)]
    fn terms<S: Simd>(simd: S, _codebook: &Codebook, block: &Block, _run: usize) -> Terms<S> {
        let zero = simd.splat(0.0);
        [simd.load_f16(&block.scales), zero, zero]
    }

    fn value([scale, ..]: [f32; 3], _column: usize, weight: u8) -> f32 {
        scale * f32::from(weight as i8 - q4_0::BIAS)
    }
}
