//! Q5_K in panels: as Q4_K, with planes of fifth bits.

use minfer_tensor::blocks::q5_k;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::codebook::Codebook;
use super::format::{Format, STEPS, Terms, bytes_at, f16_bits, put_one_nibble};
use super::planes::{FiveBits, bits_of_runs, planes};
use super::q4_k::{scaled, sub_scales};
use crate::arch::{LANES, Simd};
use crate::quantise::BLOCK;

#[allow(non_camel_case_types, reason = "the field's own spelling")]
pub(crate) struct Q5_K;

/// 256 columns of 16 rows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Block {
    runs: [Run; q5_k::SUBS],
    scales: [u16; LANES],
    minimums: [u16; LANES],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Run {
    quants: FiveBits,
    scales: [u8; LANES],
    minimums: [u8; LANES],
}

impl Format for Q5_K {
    type File = [u8; q5_k::BYTES];
    type Block = Block;
    type Kernels = Self;
    const RUNS: usize = q5_k::SUBS;
    const ZERO: Self::File = [0; q5_k::BYTES];
    const TERMS: usize = 2;

    #[inline(always)]
    fn pack(rows: &[&Self::File; LANES], block: &mut Block) {
        let mut fifths = [[0; LANES]; q5_k::SUBS];
        for (lane, row) in rows.iter().enumerate() {
            let quants: &[u8; q5_k::LEN / 2] = bytes_at(row, q5_k::QUANTS_AT);
            let (scales, minimums) = sub_scales(bytes_at(row, q5_k::SUB_SCALES_AT));
            let bits = bits_of_runs(bytes_at(row, q5_k::HIGH_AT));
            for (index, run) in block.runs.iter_mut().enumerate() {
                // Two runs share 32 bytes: the first takes the low nibbles, the second the high
                // ones.
                let bytes = &quants.as_chunks::<BLOCK>().0[index / 2];
                put_one_nibble(&mut run.quants.low, lane, bytes, if index % 2 == 0 { 0 } else { 4 });
                fifths[index][lane] = bits[index];
                run.scales[lane] = scales[index];
                run.minimums[lane] = minimums[index];
            }
            block.scales[lane] = f16_bits(row, q5_k::SCALE_AT);
            block.minimums[lane] = f16_bits(row, q5_k::MIN_AT);
        }
        for (run, fifths) in block.runs.iter_mut().zip(fifths) {
            run.quants.fifths = planes(fifths);
        }
    }

    #[inline(always)]
    fn weights<S: Simd>(simd: S, _codebook: &Codebook, block: &Block, run: usize) -> [S::U8; STEPS] {
        block.runs[run].quants.weights(simd)
    }

    #[inline(always)]
    fn terms<S: Simd>(simd: S, _codebook: &Codebook, block: &Block, run: usize) -> Terms<S> {
        let Run { scales, minimums, .. } = &block.runs[run];
        scaled(simd, [&block.scales, &block.minimums], [scales, minimums])
    }

    fn value([scale, minimum, _]: [f32; 3], _column: usize, weight: u8) -> f32 {
        scale * f32::from(weight) + minimum
    }
}
