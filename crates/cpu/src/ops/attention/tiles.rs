//! Tiles of K and V: read in place where the layout allows it, else copied.

use std::ops::Range;

use minfer_graph::{KvFormat, KvOrder};

use super::TILE;
use super::cells::HeadCells;
use super::products::{Ahead, Matrix};
use super::quantised::{QuantisedTile, Quants};
use super::scratch::KeyTile;
use crate::arch::{LANES, Simd};
use crate::ops::kv_store::MOST_DIMS;
use crate::threads::SharedSlice;

/// Query rows that a copied tile must serve to be worth the copy where it could be read in place.
const FEW_ROWS: usize = 12;
/// Largest distance between rows of K, in bytes, that leaves a tile enough sets of the first cache.
const NEAR: usize = 512;

/// A tile of K or V, ready to multiply.
#[derive(Clone, Copy)]
pub(super) enum Tile<'a> {
    /// f32, stored so or widened.
    F32(Matrix<'a, f32>),
    /// f16 in place.
    F16(Matrix<'a, u16>),
    /// Pairs of bf16.
    BF16(Matrix<'a, u32>),
}

impl Tile<'_> {
    /// The same without asking for the next tile.
    #[inline(always)]
    pub(super) fn without_ahead(self) -> Self {
        match self {
            Tile::F32(matrix) => Tile::F32(Matrix { ahead: Ahead::NONE, ..matrix }),
            Tile::F16(matrix) => Tile::F16(Matrix { ahead: Ahead::NONE, ..matrix }),
            Tile::BF16(matrix) => Tile::BF16(Matrix { ahead: Ahead::NONE, ..matrix }),
        }
    }
}

/// A tile of K in the form that its format asks for.
#[derive(Clone, Copy)]
pub(super) enum Keys<'a> {
    /// Floats.
    Plain(Tile<'a>),
    /// Blocks of integers.
    Quantised(QuantisedTile<'a>),
}

impl Keys<'_> {
    /// The same without asking for the next tile.
    #[inline(always)]
    pub(super) fn without_ahead(self) -> Self {
        match self {
            Keys::Plain(tile) => Keys::Plain(tile.without_ahead()),
            Keys::Quantised(tile) => Keys::Quantised(tile.without_ahead()),
        }
    }
}

impl<'a> HeadCells<'a> {
    /// K of the tile that starts at a position, as [dim][position] or [dim / 2][position] pairs;
    /// lanes of positions that are not `seen` hold anything.
    #[inline(always)]
    pub(super) fn k_tile<'t, S: Simd>(
        &self,
        simd: S,
        start: usize,
        seen: Range<usize>,
        rows: usize,
        copy: &'t mut KeyTile,
    ) -> Keys<'t>
    where
        'a: 't,
    {
        let (format, dim, cells) = (self.k.format, self.k.dim, &self.cells);
        let wanted_in_place = self.k.order == KvOrder::Lanes
            && (rows <= FEW_ROWS || (format != KvFormat::F16 && 4 * self.block_tokens <= NEAR));
        let one = self.one_block(start, &seen);
        let place = if wanted_in_place { one } else { None };
        let copied = Copied { start, seen, one };
        let KeyTile { floats, pairs, words, scales } = copy;
        let (floats, pairs) = (floats.get_mut(), pairs.get_mut());
        let quantised = (words.get_mut(), scales.get_mut());
        let tile = match (format, place) {
            (KvFormat::F32, Some(place)) => Tile::F32(self.k_in_place(cells.singles, start, place, dim)),
            (KvFormat::F16, Some(place)) => Tile::F16(self.k_in_place(cells.halves, start, place, dim)),
            (KvFormat::BF16, Some(place)) => Tile::BF16(self.k_in_place(cells.pairs, start, place, dim / 2)),
            (KvFormat::F32, None) => Tile::F32(self.copy_k(simd, cells.singles, copied, dim, floats)),
            (KvFormat::F16, None) => Tile::F32(self.copy_k(simd, cells.halves, copied, dim, floats)),
            (KvFormat::BF16, None) => Tile::BF16(self.copy_k(simd, cells.pairs, copied, dim / 2, pairs)),
            (KvFormat::Q8_0, _) => {
                return Keys::Quantised(self.quantised_k(copied, Quants::Bytes, quantised));
            }
            (KvFormat::Q4_0, _) => {
                return Keys::Quantised(self.quantised_k(copied, Quants::Nibbles, quantised));
            }
        };
        Keys::Plain(tile)
    }

    #[inline(always)]
    fn k_in_place<T: Copy>(
        &self,
        memory: SharedSlice<'a, T>,
        start: usize,
        (block, column): (usize, usize),
        steps: usize,
    ) -> Matrix<'a, T> {
        let stride = self.block_tokens;
        let base = (block * self.block_bytes + self.k.start) / size_of::<T>();
        let values = memory.get(base..base + steps * stride);
        Matrix { values, stride, column, first: 0, ahead: self.ahead_of_k(start, steps) }
    }

    /// A copy as [step][position].
    #[inline(always)]
    fn copy_k<'t, S: Simd, T: Stored<U>, U: Copy + Default>(
        &self,
        simd: S,
        memory: SharedSlice<'a, T>,
        tile: Copied,
        steps: usize,
        to: &'t mut [U],
    ) -> Matrix<'t, U> {
        match (self.k.order, tile.one) {
            (KvOrder::Lanes, Some((block, 0))) if self.block_tokens == TILE => {
                let base = (block * self.block_bytes + self.k.start) / size_of::<T>();
                T::copy(simd, memory.get(base..base + steps * TILE), &mut to[..steps * TILE]);
            }
            (KvOrder::Lanes, _) => self.copy_lanes(simd, memory, &tile, steps, to),
            _ => self.copy_transposed(simd, memory, &tile, steps, to),
        }
        let ahead = self.ahead_of_k(tile.start, steps);
        Matrix { values: to, stride: TILE, column: 0, first: 0, ahead }
    }

    #[inline(always)]
    fn copy_lanes<S: Simd, T: Stored<U>, U>(
        &self,
        simd: S,
        memory: SharedSlice<'a, T>,
        tile: &Copied,
        steps: usize,
        to: &mut [U],
    ) {
        let stride = self.block_tokens;
        for piece in self.pieces(tile.start, tile.seen.clone()) {
            let base = (piece.block * self.block_bytes + self.k.start) / size_of::<T>();
            let head = memory.get(base..base + steps * stride);
            let columns = piece.offset..piece.offset + piece.rows.len();
            for (from, to) in head.chunks_exact(stride).zip(to.chunks_exact_mut(TILE)) {
                T::copy(simd, &from[columns.clone()], &mut to[piece.rows.clone()]);
            }
        }
    }

    /// Rows become columns.
    #[inline(always)]
    fn copy_transposed<S: Simd, T: Stored<U>, U: Copy + Default>(
        &self,
        simd: S,
        memory: SharedSlice<'a, T>,
        tile: &Copied,
        steps: usize,
        to: &mut [U],
    ) {
        let mut row = [U::default(); MOST_DIMS];
        for piece in self.pieces(tile.start, tile.seen.clone()) {
            for (column, offset) in piece.rows.zip(piece.offset..) {
                let base = (piece.block * self.block_bytes + self.k.row(offset)) / size_of::<T>();
                T::copy(simd, memory.get(base..base + steps), &mut row[..steps]);
                for (value, to) in row[..steps].iter().zip(to.chunks_exact_mut(TILE)) {
                    to[column] = *value;
                }
            }
        }
    }

    /// V of the tile that starts at a position, as [position][width] or [position / 2][width]
    /// pairs; rows of positions that are not `seen` hold anything.
    #[inline(always)]
    pub(super) fn v_tile<'t, S: Simd>(
        &self,
        simd: S,
        start: usize,
        seen: Range<usize>,
        rows: usize,
        floats: &'t mut [f32],
        pairs: &'t mut [u32],
    ) -> Tile<'t>
    where
        'a: 't,
    {
        let (format, order, cells) = (self.v.format, self.v.order, &self.cells);
        let wanted_in_place =
            self.v.dim.is_multiple_of(LANES) && (format != KvFormat::F16 || rows <= FEW_ROWS);
        let place = self.one_block(start, &seen).filter(|_| wanted_in_place);
        match (format, place) {
            (KvFormat::F32, Some(place)) => Tile::F32(self.v_in_place(cells.singles, start, place, TILE)),
            (KvFormat::F16, Some(place)) => Tile::F16(self.v_in_place(cells.halves, start, place, TILE)),
            (KvFormat::BF16, Some(place)) if order == KvOrder::Pairs && place.1.is_multiple_of(2) => {
                Tile::BF16(self.v_in_place(cells.pairs, start, place, TILE / 2))
            }
            (KvFormat::F32, None) => Tile::F32(self.copy_v(simd, cells.singles, start, seen, floats)),
            (KvFormat::F16, None) => Tile::F32(self.copy_v(simd, cells.halves, start, seen, floats)),
            (KvFormat::BF16, _) => Tile::BF16(self.copy_v_pairs(start, seen, pairs)),
            (KvFormat::Q8_0, _) => Tile::F32(self.decode_v(simd, Quants::Bytes, start, seen, floats)),
            (KvFormat::Q4_0, _) => Tile::F32(self.decode_v(simd, Quants::Nibbles, start, seen, floats)),
        }
    }

    #[inline(always)]
    fn v_in_place<T: Copy>(
        &self,
        memory: SharedSlice<'a, T>,
        start: usize,
        (block, offset): (usize, usize),
        steps: usize,
    ) -> Matrix<'a, T> {
        // A step is a row, or two where they take turns. Heads of one row are columns.
        let stride = self.v.strides.pair / (2 * size_of::<T>()) * (TILE / steps);
        let column = self.v.column / size_of::<T>();
        let base = (block * self.block_bytes + self.v.row(offset)) / size_of::<T>() - column;
        let values = memory.get(base..base + steps * stride);
        Matrix { values, stride, column, first: 0, ahead: self.ahead_of_v(start, steps) }
    }

    /// A copy of the seen rows as [position][width].
    #[inline(always)]
    fn copy_v<'t, S: Simd, T: Stored<f32>>(
        &self,
        simd: S,
        memory: SharedSlice<'a, T>,
        start: usize,
        seen: Range<usize>,
        to: &'t mut [f32],
    ) -> Matrix<'t, f32> {
        let (dim, size) = (self.v.dim, size_of::<T>());
        let width = dim.next_multiple_of(LANES);
        let together = dim == width && self.v.strides.position == dim * size;
        for piece in self.pieces(start, seen) {
            let base = (piece.block * self.block_bytes + self.v.row(piece.offset)) / size;
            let to = &mut to[piece.rows.start * width..piece.rows.end * width];
            if together {
                T::copy(simd, memory.get(base..base + piece.rows.len() * dim), to);
                continue;
            }
            for (row, to) in to.chunks_exact_mut(width).enumerate() {
                let base = base + row * self.v.strides.position / size;
                T::copy(simd, memory.get(base..base + dim), &mut to[..dim]);
            }
        }
        Matrix { values: to, stride: width, column: 0, first: 0, ahead: self.ahead_of_v(start, TILE) }
    }

    /// A copy of the seen rows as [position / 2][width] pairs. Where a block holds a pair so too
    /// its words are copied.
    #[inline(always)]
    fn copy_v_pairs<'t>(&self, start: usize, seen: Range<usize>, to: &'t mut [u32]) -> Matrix<'t, u32> {
        let dim = self.v.dim;
        let width = dim.next_multiple_of(LANES);
        for piece in self.pieces(start, seen) {
            let row = |offset: usize| (piece.block * self.block_bytes + self.v.row(offset)) / 2;
            let mut position = piece.rows.start;
            while position < piece.rows.end {
                let offset = piece.offset + position - piece.rows.start;
                let words = &mut to[position / 2 * width..][..dim];
                let both = position.is_multiple_of(2) && position + 1 < piece.rows.end;
                if both && self.v.order == KvOrder::Pairs && offset.is_multiple_of(2) {
                    words.copy_from_slice(self.cells.pairs.get(row(offset) / 2..row(offset) / 2 + dim));
                } else if both {
                    self.join(words, row(offset), row(offset + 1));
                } else {
                    self.put_half(words, row(offset), position % 2);
                }
                position += if both { 2 } else { 1 };
            }
        }
        let ahead = self.ahead_of_v(start, TILE / 2);
        Matrix { values: to, stride: width, column: 0, first: 0, ahead }
    }

    /// The elements of a row of bf16 that starts at a half word.
    #[inline(always)]
    fn halves(&self, start: usize) -> impl Iterator<Item = u32> + use<'a> {
        let (dim, step) = (self.v.dim, if self.v.order == KvOrder::Pairs { 2 } else { 1 });
        let row = self.cells.halves.get(start..start + (dim - 1) * step + 1);
        row.iter().step_by(step).map(|&half| u32::from(half))
    }

    /// Pairs of two rows.
    #[inline(always)]
    fn join(&self, words: &mut [u32], low: usize, high: usize) {
        for (word, (low, high)) in words.iter_mut().zip(self.halves(low).zip(self.halves(high))) {
            *word = low | high << 16;
        }
    }

    /// One half of pairs.
    #[inline(always)]
    fn put_half(&self, words: &mut [u32], row: usize, half: usize) {
        for (word, value) in words.iter_mut().zip(self.halves(row)) {
            *word = *word & !(0xffff << (16 * half)) | value << (16 * half);
        }
    }
}

/// A tile of K to be copied.
pub(super) struct Copied {
    pub(super) start: usize,
    pub(super) seen: Range<usize>,
    /// Where it lies in one block, if it does.
    pub(super) one: Option<(usize, usize)>,
}

/// Stored elements that a copied tile holds as `U`.
trait Stored<U>: Copy {
    /// As many as there are.
    fn copy<S: Simd>(simd: S, from: &[Self], to: &mut [U]);
}

impl Stored<f32> for f32 {
    #[inline(always)]
    fn copy<S: Simd>(_simd: S, from: &[f32], to: &mut [f32]) {
        to.copy_from_slice(from);
    }
}

impl Stored<f32> for u16 {
    #[inline(always)]
    fn copy<S: Simd>(simd: S, from: &[u16], to: &mut [f32]) {
        widen(simd, from, to);
    }
}

impl Stored<u32> for u32 {
    #[inline(always)]
    fn copy<S: Simd>(_simd: S, from: &[u32], to: &mut [u32]) {
        to.copy_from_slice(from);
    }
}

/// f16 to f32.
#[inline(always)]
fn widen<S: Simd>(simd: S, from: &[u16], to: &mut [f32]) {
    let (lanes, rest) = from.as_chunks::<LANES>();
    let (wide, wide_rest) = to.as_chunks_mut::<LANES>();
    for (lanes, wide) in lanes.iter().zip(wide) {
        simd.store(simd.load_f16(lanes), wide);
    }
    if !rest.is_empty() {
        let (mut padded, mut out) = ([0; LANES], [0.0; LANES]);
        padded[..rest.len()].copy_from_slice(rest);
        simd.store(simd.load_f16(&padded), &mut out);
        wide_rest.copy_from_slice(&out[..rest.len()]);
    }
}
