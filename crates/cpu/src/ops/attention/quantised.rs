//! Scores of quantised K: integer dots of 32 dims, joined by one fused multiply-add each.
//!
//! A query is quantised per row and 32 dims as activations are. With its quants `a`, scale `s`, K's
//! quants `b` and scale `d`, a score is `fma(sum a * b, s * d, score)` over the blocks in order,
//! from +0. The integer sum is exact, so its order is free; it starts at what repays that K's bytes
//! are taken 128 (nibbles 8) higher than they are.

mod cells;

use minfer_graph::KvFormat;
use minfer_tensor::blocks::{q4_0, q8_0};

use super::TILE;
use super::products::{Ahead, ROWS};
use crate::arch::{Kernel, LANES, Simd};
use crate::ops::kv_store::MOST_DIMS;
use crate::quantise::{BLOCK, Term, WORDS, quantise_block};

/// Blocks of the longest head.
const MOST_BLOCKS: usize = MOST_DIMS / BLOCK;

/// How K's quants are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quants {
    /// A signed byte for each dim.
    Bytes,
    /// A nibble for each dim, 8 higher than it is: dims 0..16 of a block in the low halves, 16..32
    /// in the high ones.
    Nibbles,
}

impl Quants {
    /// Those of a format, if it has such.
    pub(super) fn of(format: KvFormat) -> Option<Quants> {
        match format {
            KvFormat::Q8_0 => Some(Quants::Bytes),
            KvFormat::Q4_0 => Some(Quants::Nibbles),
            KvFormat::F32 | KvFormat::F16 | KvFormat::BF16 => None,
        }
    }
}

/// A query as blocks of 32 dims.
#[derive(Debug, Clone, Copy)]
pub(super) struct QuantisedQuery {
    words: [[[i8; 4]; WORDS]; MOST_BLOCKS],
    scales: [f32; MOST_BLOCKS],
    /// Where the integer sum of a block starts.
    starts: [i32; MOST_BLOCKS],
}

impl QuantisedQuery {
    /// All zero.
    pub(super) const ZERO: QuantisedQuery = QuantisedQuery {
        words: [[[0; 4]; WORDS]; MOST_BLOCKS],
        scales: [0.0; MOST_BLOCKS],
        starts: [0; MOST_BLOCKS],
    };

    /// Quantises a query for K of these quants.
    #[inline(always)]
    pub(super) fn fill<S: Simd>(&mut self, simd: S, query: &[f32], quants: Quants) {
        for (block, halves) in query.as_chunks::<LANES>().0.as_chunks::<2>().0.iter().enumerate() {
            let quantised = quantise_block(simd, simd.load(&halves[0]), simd.load(&halves[1]));
            let start = match quants {
                Quants::Bytes => Term::Offset128,
                Quants::Nibbles => Term::Offset8,
            };
            self.words[block] = quantised.quants.map(|word| word.to_le_bytes().map(|byte| byte as i8));
            self.scales[block] = f32::from_bits(quantised.term(Term::Scale));
            self.starts[block] = quantised.term(start) as i32;
        }
    }
}

/// A tile of quantised K as lanes: word `w` of a position at `(w * stride + column + position) * 4`
/// of the bytes, scale `b` at `b * stride + column + position` of the scales.
#[derive(Clone, Copy)]
pub(super) struct QuantisedTile<'a> {
    pub(super) quants: Quants,
    pub(super) bytes: &'a [u8],
    pub(super) scales: &'a [u16],
    pub(super) stride: usize,
    pub(super) column: usize,
    /// Blocks of a head.
    pub(super) blocks: usize,
    /// Asked for with each word.
    pub(super) ahead: Ahead,
}

impl QuantisedTile<'_> {
    /// Words of a block.
    pub(super) fn words(quants: Quants) -> usize {
        match quants {
            Quants::Bytes => WORDS,
            Quants::Nibbles => WORDS / 2,
        }
    }

    /// The same without asking for the next tile.
    pub(super) fn without_ahead(self) -> Self {
        QuantisedTile { ahead: Ahead::NONE, ..self }
    }

    /// Raw scores of up to [`ROWS`] rows, for the first `columns` positions at least.
    #[inline(always)]
    pub(super) fn scores<S: Simd>(
        self,
        simd: S,
        queries: &[QuantisedQuery],
        columns: usize,
        out: &mut [[f32; TILE]],
    ) {
        match self.quants {
            Quants::Bytes => self.words_of::<S, WORDS>(simd, queries, columns, out),
            Quants::Nibbles => self.words_of::<S, { WORDS / 2 }>(simd, queries, columns, out),
        }
    }

    #[inline(always)]
    fn words_of<S: Simd, const W: usize>(
        self,
        simd: S,
        queries: &[QuantisedQuery],
        columns: usize,
        out: &mut [[f32; TILE]],
    ) {
        if S::WIDE {
            self.columns::<S, W, 2>(simd, queries, columns, out);
        } else {
            self.columns::<S, W, 1>(simd, queries, columns, out);
        }
    }

    #[inline(always)]
    fn columns<S: Simd, const W: usize, const V: usize>(
        self,
        simd: S,
        queries: &[QuantisedQuery],
        columns: usize,
        out: &mut [[f32; TILE]],
    ) {
        for lane in (0..columns).step_by(V * LANES) {
            let tile = if lane == 0 { self } else { self.without_ahead() };
            if S::SCALAR {
                for (queries, out) in queries.chunks(1).zip(out.chunks_mut(1)) {
                    simd.outlined(Scores::<W, 1, V> { tile, queries, lane, out });
                }
                continue;
            }
            match queries.len() {
                1 => simd.outlined(Scores::<W, 1, V> { tile, queries, lane, out }),
                2 => simd.outlined(Scores::<W, 2, V> { tile, queries, lane, out }),
                3 => simd.outlined(Scores::<W, 3, V> { tile, queries, lane, out }),
                4 => simd.outlined(Scores::<W, 4, V> { tile, queries, lane, out }),
                5 => simd.outlined(Scores::<W, 5, V> { tile, queries, lane, out }),
                _ => simd.outlined(Scores::<W, ROWS, V> { tile, queries, lane, out }),
            }
        }
    }
}

/// `R` rows times `V` vectors of positions; `W` words hold a block.
struct Scores<'a, const W: usize, const R: usize, const V: usize> {
    tile: QuantisedTile<'a>,
    queries: &'a [QuantisedQuery],
    lane: usize,
    out: &'a mut [[f32; TILE]],
}

impl<const W: usize, const R: usize, const V: usize> Kernel for Scores<'_, W, R, V> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let Scores { tile, queries, lane, out } = self;
        let queries: &[QuantisedQuery; R] = queries.first_chunk().expect("queries of every row");
        let (stride, column) = (tile.stride, tile.column + lane);
        assert!(column + V * LANES <= stride && tile.blocks <= MOST_BLOCKS, "columns of a register tile");
        let words = tile.bytes[..4 * stride * W * tile.blocks].chunks_exact(4 * stride * W);
        let scales = tile.scales[..stride * tile.blocks].chunks_exact(stride);
        let mut acc = [[simd.splat(0.0); V]; R];
        for (block, (words, scales)) in words.zip(scales).enumerate() {
            let mut dots = [[simd.splat_i32(0); V]; R];
            for r in 0..R {
                dots[r] = [simd.splat_i32(queries[r].starts[block]); V];
            }
            for (word, row) in words.chunks_exact(4 * stride).enumerate() {
                for byte in (0..tile.ahead.bytes).step_by(64) {
                    let next = (block * W + word) * tile.ahead.bytes + byte;
                    simd.prefetch(tile.ahead.address.wrapping_add(next));
                }
                let lanes = row[4 * column..4 * (column + V * LANES)].as_chunks::<{ 4 * LANES }>().0;
                for v in 0..V {
                    let stored = simd.load_bytes(&lanes[v]);
                    if W == WORDS {
                        let raised = simd.flip_top_bits(stored);
                        for r in 0..R {
                            dots[r][v] = simd.dot4_wide(dots[r][v], raised, queries[r].words[block][word]);
                        }
                    } else {
                        let (low, high) = (simd.low_nibbles(stored), simd.high_nibbles(stored));
                        for r in 0..R {
                            let query = &queries[r].words[block];
                            dots[r][v] = simd.dot4(dots[r][v], low, query[word]);
                            dots[r][v] = simd.dot4(dots[r][v], high, query[W + word]);
                        }
                    }
                }
            }
            let scales = scales[column..column + V * LANES].as_chunks::<LANES>().0;
            for v in 0..V {
                let scale = simd.load_f16(&scales[v]);
                for r in 0..R {
                    let both = simd.mul(simd.splat(queries[r].scales[block]), scale);
                    acc[r][v] = simd.fma(simd.to_f32(dots[r][v]), both, acc[r][v]);
                }
            }
        }
        for r in 0..R {
            let out = out[r][lane..lane + V * LANES].as_chunks_mut::<LANES>().0;
            for v in 0..V {
                simd.store(acc[r][v], &mut out[v]);
            }
        }
    }
}

/// One head of a position's encoded V as f32: `scale * quant`, which is exact. `scales` holds the
/// f32 of the blocks' scales.
#[inline(always)]
pub(super) fn decode_row<S: Simd>(simd: S, quants: Quants, row: &[u8], scales: &[f32], to: &mut [f32]) {
    let blocks = to.as_chunks_mut::<LANES>().0.as_chunks_mut::<2>().0;
    match quants {
        Quants::Bytes => {
            for ((to, block), scale) in
                blocks.iter_mut().zip(row.as_chunks::<{ q8_0::BYTES }>().0).zip(scales)
            {
                let halves = block[q8_0::QUANTS_AT..].as_chunks::<LANES>().0;
                for (to, half) in to.iter_mut().zip(halves) {
                    let quants = simd.load_i8(&half.map(|byte| byte as i8));
                    simd.store(simd.mul(simd.splat(*scale), quants), to);
                }
            }
        }
        Quants::Nibbles => {
            for ((to, block), scale) in
                blocks.iter_mut().zip(row.as_chunks::<{ q4_0::BYTES }>().0).zip(scales)
            {
                let bytes: &[u8; LANES] = block[q4_0::QUANTS_AT..].first_chunk().expect("a block's nibbles");
                for (to, half) in
                    to.iter_mut().zip([bytes.map(|byte| byte & 15), bytes.map(|byte| byte >> 4)])
                {
                    let quants = simd.sub(simd.load_u8(&half), simd.splat(8.0));
                    simd.store(simd.mul(simd.splat(*scale), quants), to);
                }
            }
        }
    }
}
