//! Q8_0 in panels: bytes moved up by 128, so that they are unsigned, then 16 scales.

use minfer_tensor::blocks::q8_0;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::codebook::Codebook;
use super::format::{Format, STEPS, Terms, bytes_at, f16_bits, put_word};
use crate::arch::{LANES, Simd};
use crate::quantise::BLOCK;

pub(crate) struct Q8_0;

/// Weights of 32 columns of 16 rows, moved up by 128.
pub(super) type Bytes = [[u8; 4 * LANES]; STEPS];

/// 32 columns of 16 rows.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Block {
    quants: Bytes,
    scales: [u16; LANES],
}

impl Format for Q8_0 {
    type File = [u8; q8_0::BYTES];
    type Block = Block;
    type Kernels = Self;
    const RUNS: usize = 1;
    const ZERO: Self::File = [0; q8_0::BYTES];
    const TERMS: usize = 1;

    #[inline(always)]
    fn pack(rows: &[&Self::File; LANES], block: &mut Block) {
        for (lane, row) in rows.iter().enumerate() {
            put_bytes(&mut block.quants, lane, bytes_at(row, q8_0::QUANTS_AT));
            block.scales[lane] = f16_bits(row, q8_0::SCALE_AT);
        }
    }

    #[inline(always)]
    fn weights<S: Simd>(simd: S, _codebook: &Codebook, block: &Block, _run: usize) -> [S::U8; STEPS] {
        weights_of_bytes(simd, &block.quants)
    }

    #[inline(always)]
    fn terms<S: Simd>(simd: S, _codebook: &Codebook, block: &Block, _run: usize) -> Terms<S> {
        let zero = simd.splat(0.0);
        [simd.load_f16(&block.scales), zero, zero]
    }

    fn value([scale, ..]: [f32; 3], _column: usize, weight: u8) -> f32 {
        scale * f32::from((weight ^ 0x80) as i8)
    }
}

/// Stores a row's signed bytes.
#[inline(always)]
pub(super) fn put_bytes(packed: &mut Bytes, lane: usize, bytes: &[u8; BLOCK]) {
    for (vector, four) in packed.iter_mut().zip(bytes.as_chunks::<4>().0) {
        // Adding 128 to a signed byte flips its top bit.
        put_word(vector, lane, u32::from_le_bytes(*four) ^ 0x8080_8080);
    }
}

/// The eight vectors of bytes.
#[inline(always)]
pub(super) fn weights_of_bytes<S: Simd>(simd: S, packed: &Bytes) -> [S::U8; STEPS] {
    let mut out = [simd.load_bytes(&packed[0]); STEPS];
    for i in 1..STEPS {
        out[i] = simd.load_bytes(&packed[i]);
    }
    out
}
