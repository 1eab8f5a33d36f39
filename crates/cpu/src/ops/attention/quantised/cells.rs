//! Tiles of quantised K and V: K as lanes of words and scales, V as f32.

use std::ops::Range;

use minfer_graph::KvOrder;

use super::super::TILE;
use super::super::cells::HeadCells;
use super::super::products::Matrix;
use super::super::tiles::Copied;
use super::{QuantisedTile, Quants, decode_row};
use crate::arch::{LANES, Simd};
use crate::ops::kv_store::MOST_DIMS;
use crate::quantise::BLOCK;

impl<'a> HeadCells<'a> {
    /// A tile of quantised K; lanes of positions that are not seen hold anything. It is read in
    /// place where its lanes lie so in one block.
    #[inline(always)]
    pub(in super::super) fn quantised_k<'t>(
        &self,
        tile: Copied,
        quants: Quants,
        (words, scales): (&'t mut [u8], &'t mut [u16]),
    ) -> QuantisedTile<'t>
    where
        'a: 't,
    {
        let Copied { start, seen, one } = tile;
        let (blocks, word_count) = (self.k.dim / BLOCK, QuantisedTile::words(quants));
        let units = blocks * word_count;
        let ahead = self.ahead_of_k(start, units);
        match (self.k.order, one) {
            (KvOrder::Lanes, Some((block, column))) => {
                let stride = self.block_tokens;
                let base = block * self.block_bytes + self.k.start;
                let bytes = self.cells.bytes.get(base..base + 4 * units * stride);
                let base = base / 2 + 2 * units * stride;
                let scales = self.cells.halves.get(base..base + blocks * stride);
                return QuantisedTile { quants, bytes, scales, stride, column, blocks, ahead };
            }
            (KvOrder::Lanes, None) => self.copy_quantised_lanes(start, seen, [units, blocks], words, scales),
            _ => self.copy_quantised_rows(start, seen, word_count, words, scales),
        }
        QuantisedTile { quants, bytes: words, scales, stride: TILE, column: 0, blocks, ahead }
    }

    fn copy_quantised_lanes(
        &self,
        start: usize,
        seen: Range<usize>,
        [units, blocks]: [usize; 2],
        words: &mut [u8],
        scales: &mut [u16],
    ) {
        let stride = self.block_tokens;
        for piece in self.pieces(start, seen) {
            let base = piece.block * self.block_bytes + self.k.start;
            let (rows, from, count) = (piece.rows.start, piece.offset, piece.rows.len());
            for unit in 0..units {
                let source = base + 4 * (unit * stride + from);
                words[4 * (unit * TILE + rows)..][..4 * count]
                    .copy_from_slice(self.cells.bytes.get(source..source + 4 * count));
            }
            for block in 0..blocks {
                let source = base / 2 + 2 * units * stride + block * stride + from;
                scales[block * TILE + rows..][..count]
                    .copy_from_slice(self.cells.halves.get(source..source + count));
            }
        }
    }

    fn copy_quantised_rows(
        &self,
        start: usize,
        seen: Range<usize>,
        word_count: usize,
        words: &mut [u8],
        scales: &mut [u16],
    ) {
        let (block_bytes, bytes) = (self.k.format.block_bytes() as usize, self.k.strides.unit_bytes);
        for piece in self.pieces(start, seen) {
            for (column, offset) in piece.rows.zip(piece.offset..) {
                let base = piece.block * self.block_bytes + self.k.row(offset);
                let row = self.cells.bytes.get(base..base + bytes);
                for (block, encoded) in row.chunks_exact(block_bytes).enumerate() {
                    scales[block * TILE + column] = u16::from_le_bytes([encoded[0], encoded[1]]);
                    for (word, four) in encoded[2..].chunks_exact(4).enumerate() {
                        words[4 * ((block * word_count + word) * TILE + column)..][..4].copy_from_slice(four);
                    }
                }
            }
        }
    }

    /// The seen rows of quantised V as f32, [position][dim].
    #[inline(always)]
    pub(in super::super) fn decode_v<'t, S: Simd>(
        &self,
        simd: S,
        quants: Quants,
        start: usize,
        seen: Range<usize>,
        to: &'t mut [f32],
    ) -> Matrix<'t, f32> {
        let (dim, bytes) = (self.v.dim, self.v.strides.unit_bytes);
        let blocks = dim / BLOCK;
        let mut halves = [0u16; TILE * MOST_DIMS / BLOCK];
        let mut scales = [0f32; TILE * MOST_DIMS / BLOCK];
        for piece in self.pieces(start, seen) {
            let row = |index: usize| {
                let base = piece.block * self.block_bytes + self.v.row(piece.offset + index);
                self.cells.bytes.get(base..base + bytes)
            };
            let count = piece.rows.len();
            for (index, to) in halves[..count * blocks].chunks_exact_mut(blocks).enumerate() {
                for (encoded, to) in row(index).chunks_exact(bytes / blocks).zip(to) {
                    *to = u16::from_le_bytes([encoded[0], encoded[1]]);
                }
            }
            let lanes = (count * blocks).div_ceil(LANES);
            for (half, scale) in
                halves.as_chunks::<LANES>().0.iter().zip(scales.as_chunks_mut::<LANES>().0).take(lanes)
            {
                simd.store(simd.load_f16(half), scale);
            }
            let to = to[piece.rows.start * dim..piece.rows.end * dim].chunks_exact_mut(dim);
            for (index, (to, scales)) in to.zip(scales.chunks_exact(blocks)).enumerate() {
                decode_row(simd, quants, row(index), scales, to);
            }
        }
        Matrix { values: to, stride: dim, column: 0, first: 0, ahead: self.ahead_of_v(start, TILE) }
    }
}
