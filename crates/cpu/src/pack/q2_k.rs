//! Q2_K in panels: eight runs of two-bit weights with the sub-scales and sub-minimums of their
//! halves, then 16 scales of each kind.

use minfer_tensor::blocks::q2_k;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::codebook::Codebook;
use super::format::{Format, STEPS, Terms, bytes_at, f16_bits};
use super::pairs::{Pairs, pairs, put_pairs_of_run};
use crate::arch::{LANES, Simd};
use crate::quantise::BLOCK;

#[allow(non_camel_case_types, reason = "the field's own spelling")]
pub(crate) struct Q2_K;

/// Runs of 32 columns in a block.
const RUNS: usize = q2_k::LEN / BLOCK;

/// 256 columns of 16 rows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Block {
    runs: [Run; RUNS],
    scales: [u16; LANES],
    minimums: [u16; LANES],
}

/// Sub-scales are the low nibbles, sub-minimums the high nibbles of `subs`, for the low and the
/// high half.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Run {
    pairs: Pairs,
    subs: [[u8; LANES]; 2],
}

impl Format for Q2_K {
    type File = [u8; q2_k::BYTES];
    type Block = Block;
    type Kernels = Self;
    const RUNS: usize = RUNS;
    const ZERO: Self::File = [0; q2_k::BYTES];
    const TERMS: usize = 3;

    #[inline(always)]
    fn pack(rows: &[&Self::File; LANES], block: &mut Block) {
        for (lane, row) in rows.iter().enumerate() {
            let subs: &[u8; q2_k::SUBS] = bytes_at(row, q2_k::SUB_SCALES_AT);
            for (index, run) in block.runs.iter_mut().enumerate() {
                put_pairs_of_run(&mut run.pairs, lane, bytes_at(row, q2_k::QUANTS_AT), index);
                run.subs[0][lane] = subs[2 * index];
                run.subs[1][lane] = subs[2 * index + 1];
            }
            block.scales[lane] = f16_bits(row, q2_k::SCALE_AT);
            block.minimums[lane] = f16_bits(row, q2_k::MIN_AT);
        }
    }

    /// Weights times their sub-scales: at most 45.
    #[inline(always)]
    fn weights<S: Simd>(simd: S, _codebook: &Codebook, block: &Block, run: usize) -> [S::U8; STEPS] {
        let run = &block.runs[run];
        let scales = run.subs.map(|half| half.map(|both| both & 15));
        let mut weights = pairs(simd, &run.pairs);
        for i in 0..STEPS {
            weights[i] = simd.mul_lanes(weights[i], &scales[i / (STEPS / 2)]);
        }
        weights
    }

    /// Products of 11 and 4 bits are exact.
    #[inline(always)]
    fn terms<S: Simd>(simd: S, _codebook: &Codebook, block: &Block, run: usize) -> Terms<S> {
        let minimums = block.runs[run].subs.map(|half| half.map(|both| both >> 4));
        let negative = simd.sub(simd.splat(-0.0), simd.load_f16(&block.minimums));
        let [low, high] = &minimums;
        [
            simd.load_f16(&block.scales),
            simd.mul(negative, simd.load_u8(low)),
            simd.mul(negative, simd.load_u8(high)),
        ]
    }

    fn value(terms: [f32; 3], column: usize, weight: u8) -> f32 {
        terms[0] * f32::from(weight) + terms[1 + column / q2_k::SUB_LEN]
    }
}
