//! Two-bit weights, or two-bit parts of weights, four to a byte.

use super::format::{STEPS, put_word};
use crate::arch::{LANES, Simd};
use crate::quantise::BLOCK;

/// Two bits of every weight of a run: byte `b` of vector `v` holds those of byte `b` in steps `4 v
/// .. 4 v + 4`, from its low end on.
pub(super) type Pairs = [[u8; 4 * LANES]; STEPS / 4];

/// Stores two bits, from bit `shift` on, of every one of a row's 32 bytes.
#[inline(always)]
pub(super) fn put_pairs(pairs: &mut Pairs, lane: usize, bytes: &[u8; BLOCK], shift: u32) {
    for (vector, sixteen) in pairs.iter_mut().zip(bytes.as_chunks::<16>().0) {
        let mut word = 0;
        for (step, four) in sixteen.as_chunks::<4>().0.iter().enumerate() {
            word |= (u32::from_le_bytes(*four) >> shift & 0x0303_0303) << (2 * step);
        }
        put_word(vector, lane, word);
    }
}

/// Stores run `run` of a row's 256 columns, of which each half is four quarters of 32 in the bits
/// of 32 bytes.
#[inline(always)]
pub(super) fn put_pairs_of_run(pairs: &mut Pairs, lane: usize, bytes: &[u8; 64], run: usize) {
    put_pairs(pairs, lane, &bytes.as_chunks().0[run / 4], 2 * (run % 4) as u32);
}

/// The weights of a run, 0 to 3.
#[inline(always)]
pub(super) fn pairs<S: Simd>(simd: S, packed: &Pairs) -> [S::U8; STEPS] {
    let packed = [simd.load_bytes(&packed[0]), simd.load_bytes(&packed[1])];
    let mut weights = [packed[0]; STEPS];
    for i in 0..STEPS {
        weights[i] = simd.pairs_of_step(packed[i / 4], i % 4);
    }
    weights
}

/// Weights with two more bits above their low four.
#[inline(always)]
pub(super) fn with_pairs<S: Simd>(simd: S, mut weights: [S::U8; STEPS], packed: &Pairs) -> [S::U8; STEPS] {
    let packed = [simd.load_bytes(&packed[0]), simd.load_bytes(&packed[1])];
    for i in 0..STEPS {
        weights[i] = simd.or_pairs_of_step(weights[i], packed[i / 4], i % 4);
    }
    weights
}
