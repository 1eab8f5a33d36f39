//! TQ2_0 and TQ1_0 in panels: eight runs of two-bit weights, then 16 scales. TQ1_0's 1.69 bits
//! become 2.06, since digits to base 3 cost more to take apart than the bandwidth they save.

use minfer_tensor::blocks::{tq1_0, tq2_0};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::codebook::Codebook;
use super::format::{Format, STEPS, Terms, bytes_at, f16_bits};
use super::pairs::{Pairs, put_pairs, put_pairs_of_run, with_pairs};
use crate::arch::{LANES, Simd};
use crate::quantise::BLOCK;

pub(crate) struct TQ1_0;

pub(crate) struct TQ2_0;

/// Runs of 32 columns in a block.
const RUNS: usize = tq2_0::LEN / BLOCK;

/// 256 columns of 16 rows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Block {
    runs: [Pairs; RUNS],
    scales: [u16; LANES],
}

impl Format for TQ2_0 {
    type File = [u8; tq2_0::BYTES];
    type Block = Block;
    type Kernels = Self;
    const RUNS: usize = RUNS;
    const ZERO: Self::File = [0; tq2_0::BYTES];
    const TERMS: usize = 1;

    #[inline(always)]
    fn pack(rows: &[&Self::File; LANES], block: &mut Block) {
        for (lane, row) in rows.iter().enumerate() {
            for (index, run) in block.runs.iter_mut().enumerate() {
                put_pairs_of_run(run, lane, bytes_at(row, tq2_0::QUANTS_AT), index);
            }
            block.scales[lane] = f16_bits(row, tq2_0::SCALE_AT);
        }
    }

    /// Sixteen times the quants, so that what they are too large by is 16.
    #[inline(always)]
    fn weights<S: Simd>(simd: S, _codebook: &Codebook, block: &Block, run: usize) -> [S::U8; STEPS] {
        with_pairs(simd, [simd.load_bytes(&[0; 4 * LANES]); STEPS], &block.runs[run])
    }

    /// A sixteenth of an f16 is exact.
    #[inline(always)]
    fn terms<S: Simd>(simd: S, _codebook: &Codebook, block: &Block, _run: usize) -> Terms<S> {
        let zero = simd.splat(0.0);
        [simd.mul(simd.load_f16(&block.scales), simd.splat(0.0625)), zero, zero]
    }

    fn value([scale, ..]: [f32; 3], _column: usize, weight: u8) -> f32 {
        scale * f32::from(weight as i8 - 16)
    }
}

impl Format for TQ1_0 {
    type File = [u8; tq1_0::BYTES];
    type Block = Block;
    type Kernels = TQ2_0;
    const RUNS: usize = RUNS;
    const ZERO: Self::File = [0; tq1_0::BYTES];
    const TERMS: usize = TQ2_0::TERMS;

    fn pack(rows: &[&Self::File; LANES], block: &mut Block) {
        for (lane, row) in rows.iter().enumerate() {
            let quants = tq1_0_quants(row);
            for (run, quants) in block.runs.iter_mut().zip(quants.as_chunks::<BLOCK>().0) {
                put_pairs(run, lane, quants, 0);
            }
            block.scales[lane] = f16_bits(row, tq1_0::SCALE_AT);
        }
    }

    #[inline(always)]
    fn weights<S: Simd>(simd: S, codebook: &Codebook, block: &Block, run: usize) -> [S::U8; STEPS] {
        TQ2_0::weights(simd, codebook, block, run)
    }

    #[inline(always)]
    fn terms<S: Simd>(simd: S, codebook: &Codebook, block: &Block, run: usize) -> Terms<S> {
        TQ2_0::terms(simd, codebook, block, run)
    }

    fn value(terms: [f32; 3], column: usize, weight: u8) -> f32 {
        TQ2_0::value(terms, column, weight)
    }
}

/// The quants in element order: what `tq1_0::unpack` gives, in runs that vectors can take.
fn tq1_0_quants(row: &[u8; tq1_0::BYTES]) -> [u8; tq1_0::LEN] {
    let mut quants = [0; tq1_0::LEN];
    let (wide, rest) = quants.split_at_mut(160);
    let (narrow, last) = rest.split_at_mut(80);
    digits::<32>(bytes_at(row, tq1_0::QUANTS_AT), wide);
    digits::<16>(bytes_at(row, tq1_0::QUANTS_AT + 32), narrow);
    digits::<4>(bytes_at(row, tq1_0::QUANTS_AT + 48), last);
    quants
}

/// The first digits to base 3 of `N` bytes as fractions, digit after digit.
#[inline(always)]
fn digits<const N: usize>(bytes: &[u8; N], out: &mut [u8]) {
    let mut rest = *bytes;
    for out in out.as_chunks_mut::<N>().0 {
        for (digit, byte) in out.iter_mut().zip(&mut rest) {
            let tripled = u16::from(*byte) * 3;
            *digit = (tripled >> 8) as u8;
            *byte = tripled as u8;
        }
    }
}
