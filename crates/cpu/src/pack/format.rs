//! The trait of a packed weight type: its block in memory, and how kernels unpack it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::codebook::Codebook;
use crate::arch::{LANES, Simd};
use crate::quantise::BLOCK;

/// Vectors of bytes that hold 32 columns of 16 rows, four columns each.
pub(crate) const STEPS: usize = 8;

/// Numbers of a run of 32 columns, one lane for each row: the scale, then what the type adds to it
/// (a minimum, or the scales of two halves). Unused ones are zero.
pub(crate) type Terms<S> = [<S as Simd>::F32; 3];

/// How one quantised type lies in a panel of 16 rows.
///
/// A block is as many columns as a block of the file, taken from 16 rows; it splits into
/// [`RUNS`](Format::RUNS) runs of 32 columns. Weights of a run come as eight vectors, of which
/// vector `i` holds columns `4 i .. 4 i + 4` of row `l` in lane `l`, as unsigned bytes.
pub(crate) trait Format: 'static {
    /// A block of the file.
    type File: FromBytes + Immutable + KnownLayout + Unaligned;
    /// The same columns of 16 rows, packed.
    type Block: FromBytes + IntoBytes + Immutable + KnownLayout;
    /// The format whose kernels run this one: itself, or one whose runs lie in memory as this one's
    /// do.
    type Kernels: Format;
    /// Runs of 32 columns in a block.
    const RUNS: usize;
    /// Bytes of zero, which is a block of zeros.
    const ZERO: Self::File;
    /// How many of [`Terms`] the type uses.
    const TERMS: usize;
    /// What the weights of a codebook type stand for.
    const CODEBOOK: Codebook = Codebook::NONE;

    /// Packs the same block of 16 rows.
    fn pack(rows: &[&Self::File; LANES], block: &mut Self::Block);
    /// The weights of a run. The codebook is that of the matrix.
    fn weights<S: Simd>(simd: S, codebook: &Codebook, block: &Self::Block, run: usize) -> [S::U8; STEPS];
    /// The terms of a run.
    fn terms<S: Simd>(simd: S, codebook: &Codebook, block: &Self::Block, run: usize) -> Terms<S>;
    /// The value of a weight in column `column` of its run: the type's formula, rounded as its
    /// decoder rounds.
    fn value(terms: [f32; 3], column: usize, weight: u8) -> f32;
}

/// An unpacked run: 32 columns of 16 rows.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// Weights as [`Format::weights`] gives them.
    pub(crate) weights: [[u8; 4 * LANES]; STEPS],
    /// Terms as [`Format::terms`] gives them.
    pub(crate) terms: [[f32; LANES]; 3],
}

impl Run {
    /// All zero.
    pub(crate) const ZERO: Run = Run { weights: [[0; 4 * LANES]; STEPS], terms: [[0.0; LANES]; 3] };

    /// Unpacks a run of a block. Terms that the type does not use keep what they were.
    #[inline(always)]
    pub(crate) fn fill<S: Simd, F: Format>(
        &mut self,
        simd: S,
        codebook: &Codebook,
        block: &F::Block,
        run: usize,
    ) {
        let weights = F::weights(simd, codebook, block, run);
        for i in 0..STEPS {
            simd.store_bytes(weights[i], &mut self.weights[i]);
        }
        let terms = F::terms(simd, codebook, block, run);
        for i in 0..F::TERMS {
            simd.store(terms[i], &mut self.terms[i]);
        }
    }

    /// The values of one row.
    pub(crate) fn row<F: Format>(&self, lane: usize, out: &mut [f32; BLOCK]) {
        let terms = self.terms.map(|term| term[lane]);
        for (column, value) in out.iter_mut().enumerate() {
            *value = F::value(terms, column, self.weights[column / 4][4 * lane + column % 4]);
        }
    }
}

/// Two vectors of nibbles for every four steps: byte `b` of vector `i` holds the weight of byte `b`
/// in step `i` (low nibble) and in step `i + 4` (high nibble).
pub(super) type Nibbles = [[u8; 4 * LANES]; STEPS / 2];

/// The eight vectors of packed nibbles.
#[inline(always)]
pub(super) fn nibbles<S: Simd>(simd: S, packed: &Nibbles) -> [S::U8; STEPS] {
    let mut out = [simd.load_bytes(&packed[0]); STEPS];
    for i in 0..STEPS / 2 {
        let both = simd.load_bytes(&packed[i]);
        out[i] = simd.low_nibbles(both);
        out[i + 4] = simd.high_nibbles(both);
    }
    out
}

/// Stores four columns of a row as bytes.
#[inline(always)]
pub(super) fn put_word(vector: &mut [u8; 4 * LANES], lane: usize, word: u32) {
    vector.as_chunks_mut::<4>().0[lane] = word.to_le_bytes();
}

/// Stores the 16 nibble bytes of a 32-column run of the file, whose low nibbles are columns 0..16
/// and whose high nibbles are columns 16..32: four bytes together are just what a lane holds.
#[inline(always)]
pub(super) fn put_nibbles(packed: &mut Nibbles, lane: usize, bytes: &[u8; BLOCK / 2]) {
    for (vector, four) in packed.iter_mut().zip(bytes.as_chunks::<4>().0) {
        put_word(vector, lane, u32::from_le_bytes(*four));
    }
}

/// Stores the nibbles of a run whose columns are the low (`shift` 0) or high (`shift` 4) nibbles of
/// 32 bytes.
#[inline(always)]
pub(super) fn put_one_nibble(packed: &mut Nibbles, lane: usize, bytes: &[u8; BLOCK], shift: u32) {
    let words = bytes.as_chunks::<4>().0;
    for i in 0..STEPS / 2 {
        let low = u32::from_le_bytes(words[i]) >> shift & 0x0f0f_0f0f;
        let high = u32::from_le_bytes(words[i + 4]) >> shift & 0x0f0f_0f0f;
        put_word(&mut packed[i], lane, low | high << 4);
    }
}

/// The bits of the f16 at byte `at` of a block.
#[inline(always)]
pub(super) fn f16_bits<const N: usize>(block: &[u8; N], at: usize) -> u16 {
    u16::from_le_bytes([block[at], block[at + 1]])
}

/// `M` bytes of a block from `at` on.
#[inline(always)]
pub(super) fn bytes_at<const M: usize, const N: usize>(block: &[u8; N], at: usize) -> &[u8; M] {
    block[at..].first_chunk().expect("the field lies inside the block")
}
