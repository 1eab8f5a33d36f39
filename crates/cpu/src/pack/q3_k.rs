//! Q3_K in panels: eight runs of two-bit weights and planes of third bits, the sub-scales in six
//! bits, then 16 scales.

use minfer_tensor::blocks::q3_k;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::codebook::Codebook;
use super::format::{Format, STEPS, Terms, bytes_at, f16_bits};
use super::pairs::{Pairs, pairs, put_pairs_of_run};
use super::planes::{Planes, bits_of_runs, planes};
use crate::arch::{LANES, Simd};
use crate::quantise::BLOCK;

#[allow(non_camel_case_types, reason = "the field's own spelling")]
pub(crate) struct Q3_K;

/// Runs of 32 columns in a block.
const RUNS: usize = q3_k::LEN / BLOCK;

/// 256 columns of 16 rows.
///
/// Of the sub-scales of run `r`, the low four bits are in `low[r]` (low half of the columns in the
/// low nibble), the top two in nibble `r % 2` of `top[r / 2]`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Block {
    runs: [Run; RUNS],
    low: [[u8; LANES]; RUNS],
    top: [[u8; LANES]; RUNS / 2],
    scales: [u16; LANES],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Run {
    pairs: Pairs,
    thirds: Planes,
}

impl Format for Q3_K {
    type File = [u8; q3_k::BYTES];
    type Block = Block;
    type Kernels = Self;
    const RUNS: usize = RUNS;
    const ZERO: Self::File = [0; q3_k::BYTES];
    const TERMS: usize = 3;

    #[inline(always)]
    fn pack(rows: &[&Self::File; LANES], block: &mut Block) {
        let mut thirds = [[0; LANES]; RUNS];
        for (lane, row) in rows.iter().enumerate() {
            for (index, run) in block.runs.iter_mut().enumerate() {
                put_pairs_of_run(&mut run.pairs, lane, bytes_at(row, q3_k::LOW_AT), index);
            }
            for (run, bits) in bits_of_runs(bytes_at(row, q3_k::HIGH_AT)).into_iter().enumerate() {
                thirds[run][lane] = bits;
            }
            let (low, top) = sub_scales(bytes_at(row, q3_k::SUB_SCALES_AT));
            for (to, from) in block.low.iter_mut().zip(low) {
                to[lane] = from;
            }
            for (to, from) in block.top.iter_mut().zip(top) {
                to[lane] = from;
            }
            block.scales[lane] = f16_bits(row, q3_k::SCALE_AT);
        }
        for (run, thirds) in block.runs.iter_mut().zip(thirds) {
            run.thirds = planes(thirds);
        }
    }

    /// Weights of 0 to 7, moved up by 28: with 4 of their own they are 32 too large, as Q6_K's are.
    #[inline(always)]
    fn weights<S: Simd>(simd: S, _codebook: &Codebook, block: &Block, run: usize) -> [S::U8; STEPS] {
        let run = &block.runs[run];
        let mut weights = pairs(simd, &run.pairs);
        for i in 0..STEPS {
            weights[i] = simd.or_bit_choice(weights[i], run.thirds[i], 28, 32);
        }
        weights
    }

    #[inline(always)]
    fn terms<S: Simd>(simd: S, _codebook: &Codebook, block: &Block, run: usize) -> Terms<S> {
        let (low, top) = (&block.low[run], &block.top[run / 2]);
        let moved = top.map(|byte| byte >> (4 * (run % 2)));
        let first: [u8; LANES] = std::array::from_fn(|lane| low[lane] & 15 | (moved[lane] & 3) << 4);
        let second: [u8; LANES] = std::array::from_fn(|lane| low[lane] >> 4 | (moved[lane] & 12) << 2);
        let bias = simd.splat(f32::from(q3_k::SUB_SCALE_BIAS));
        [
            simd.load_f16(&block.scales),
            simd.sub(simd.load_u8(&first), bias),
            simd.sub(simd.load_u8(&second), bias),
        ]
    }

    fn value(terms: [f32; 3], column: usize, weight: u8) -> f32 {
        terms[0] * terms[1 + column / q3_k::SUB_LEN] * f32::from(weight as i8 - 32)
    }
}

/// The sixteen 6-bit scales as the block holds them.
///
/// In the file nibble `s / 8` of byte `s % 8` holds the low bits of scale `s`, bits `2 (s / 4)` and
/// one more of byte `8 + s % 4` its top two.
#[inline(always)]
fn sub_scales(packed: &[u8; 12]) -> ([u8; RUNS], [u8; RUNS / 2]) {
    let low = |s: usize| packed[s % 8] >> (4 * (s / 8)) & 15;
    let top = |s: usize| packed[8 + s % 4] >> (2 * (s / 4)) & 3;
    let two_tops = |run: usize| top(2 * run) | top(2 * run + 1) << 2;
    (
        std::array::from_fn(|run| low(2 * run) | low(2 * run + 1) << 4),
        std::array::from_fn(|pair| two_tops(2 * pair) | two_tops(2 * pair + 1) << 4),
    )
}
