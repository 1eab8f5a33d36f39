//! Q8_K in panels: as Q8_0, with 16 f32 scales for 256 columns. The file's sums are left out, so
//! a panel is smaller than its rows in the file.

use minfer_tensor::blocks::q8_k;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::codebook::Codebook;
use super::format::{Format, STEPS, Terms, bytes_at};
use super::q8_0::{Bytes, put_bytes, weights_of_bytes};
use crate::arch::{LANES, Simd};
use crate::quantise::BLOCK;

#[allow(non_camel_case_types, reason = "the field's own spelling")]
pub(crate) struct Q8_K;

/// Runs of 32 columns in a block.
const RUNS: usize = q8_k::LEN / BLOCK;

/// 256 columns of 16 rows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Block {
    runs: [Bytes; RUNS],
    scales: [f32; LANES],
}

impl Format for Q8_K {
    type File = [u8; q8_k::BYTES];
    type Block = Block;
    type Kernels = Self;
    const RUNS: usize = RUNS;
    const ZERO: Self::File = [0; q8_k::BYTES];
    const TERMS: usize = 1;

    #[inline(always)]
    fn pack(rows: &[&Self::File; LANES], block: &mut Block) {
        for (lane, row) in rows.iter().enumerate() {
            let quants: &[u8; q8_k::LEN] = bytes_at(row, q8_k::QUANTS_AT);
            for (run, quants) in block.runs.iter_mut().zip(quants.as_chunks::<BLOCK>().0) {
                put_bytes(run, lane, quants);
            }
            block.scales[lane] = f32::from_le_bytes(*bytes_at(row, q8_k::SCALE_AT));
        }
    }

    #[inline(always)]
    fn weights<S: Simd>(simd: S, _codebook: &Codebook, block: &Block, run: usize) -> [S::U8; STEPS] {
        weights_of_bytes(simd, &block.runs[run])
    }

    #[inline(always)]
    fn terms<S: Simd>(simd: S, _codebook: &Codebook, block: &Block, _run: usize) -> Terms<S> {
        let zero = simd.splat(0.0);
        [simd.load(&block.scales), zero, zero]
    }

    fn value([scale, ..]: [f32; 3], _column: usize, weight: u8) -> f32 {
        scale * f32::from((weight ^ 0x80) as i8)
    }
}
