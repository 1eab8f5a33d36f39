//! Q6_K in panels: eight runs of nibbles, upper bit pairs and two sub-scales, then 16 scales.

use minfer_tensor::blocks::q6_k;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::codebook::Codebook;
use super::format::{Format, Nibbles, STEPS, Terms, bytes_at, f16_bits, nibbles, put_one_nibble};
use super::pairs::{Pairs, put_pairs, with_pairs};
use crate::arch::{LANES, Simd};
use crate::quantise::BLOCK;

#[allow(non_camel_case_types, reason = "the field's own spelling")]
pub(crate) struct Q6_K;

/// Runs of 32 columns in a block.
const RUNS: usize = q6_k::LEN / BLOCK;

/// 256 columns of 16 rows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Block {
    runs: [Run; RUNS],
    scales: [u16; LANES],
}

/// `pairs` are the upper bits.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Run {
    quants: Nibbles,
    pairs: Pairs,
    scales: [[i8; LANES]; 2],
}

impl Format for Q6_K {
    type File = [u8; q6_k::BYTES];
    type Block = Block;
    type Kernels = Self;
    const RUNS: usize = RUNS;
    const ZERO: Self::File = [0; q6_k::BYTES];
    const TERMS: usize = 3;

    #[inline(always)]
    fn pack(rows: &[&Self::File; LANES], block: &mut Block) {
        for (lane, row) in rows.iter().enumerate() {
            let low: &[u8; q6_k::LEN / 2] = bytes_at(row, q6_k::LOW_AT);
            let high: &[u8; q6_k::LEN / 4] = bytes_at(row, q6_k::HIGH_AT);
            let scales: &[u8; q6_k::SUBS] = bytes_at(row, q6_k::SUB_SCALES_AT);
            for (index, run) in block.runs.iter_mut().enumerate() {
                // Four runs share 64 low and 32 high bytes.
                let (half, quarter) = (index / 4, index % 4);
                let bytes = &low.as_chunks::<BLOCK>().0[2 * half + quarter % 2];
                put_one_nibble(&mut run.quants, lane, bytes, if quarter < 2 { 0 } else { 4 });
                put_pairs(&mut run.pairs, lane, &high.as_chunks::<BLOCK>().0[half], 2 * quarter as u32);
                run.scales[0][lane] = scales[2 * index] as i8;
                run.scales[1][lane] = scales[2 * index + 1] as i8;
            }
            block.scales[lane] = f16_bits(row, q6_k::SCALE_AT);
        }
    }

    #[inline(always)]
    fn weights<S: Simd>(simd: S, _codebook: &Codebook, block: &Block, run: usize) -> [S::U8; STEPS] {
        let run = &block.runs[run];
        with_pairs(simd, nibbles(simd, &run.quants), &run.pairs)
    }

    #[inline(always)]
    fn terms<S: Simd>(simd: S, _codebook: &Codebook, block: &Block, run: usize) -> Terms<S> {
        let scales = &block.runs[run].scales;
        [simd.load_f16(&block.scales), simd.load_i8(&scales[0]), simd.load_i8(&scales[1])]
    }

    fn value(terms: [f32; 3], column: usize, weight: u8) -> f32 {
        terms[0] * terms[1 + column / q6_k::SUB_LEN] * f32::from(weight as i8 - q6_k::BIAS)
    }
}
