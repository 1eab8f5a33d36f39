//! Where a tile's K and V lie, and their copy where kernels cannot read them in place.

use std::ops::Range;

use minfer_graph::{KvFormat, KvGroupSpec, KvSide};

use super::TILE;
use super::products::{Ahead, Matrix};
use crate::arch::{LANES, Simd};
use crate::arena::KvCells;
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

/// One KV head of one sequence in one layer.
#[derive(Clone, Copy)]
pub(super) struct HeadCells<'a> {
    pub(super) group: &'a KvGroupSpec,
    pub(super) cells: KvCells<'a>,
    pub(super) blocks: &'a [u32],
    pub(super) layer_index: usize,
    pub(super) kv_head: usize,
}

impl<'a> HeadCells<'a> {
    fn block_tokens(&self) -> usize {
        self.group.block_tokens as usize
    }

    /// Index of the head's first element of one side in the block that holds a position, in units of `bytes`.
    fn base(&self, position: usize, side: KvSide, bytes: usize) -> usize {
        let block = self.blocks[position / self.block_tokens()] as usize;
        let (dim, format) = match side {
            KvSide::K => (self.group.k_dim, self.group.k_format),
            KvSide::V => (self.group.v_dim, self.group.v_format),
        };
        let head = self.block_tokens() * dim as usize * format.element_bytes() as usize;
        let start = block * self.group.bytes_per_block() as usize
            + self.group.side_offset(self.layer_index, side) as usize
            + self.kv_head * head;
        start / bytes
    }

    /// One side of the tile after the one that starts at a position, in a number of steps; nothing where blocks are no tiles.
    fn ahead(&self, start: usize, side: KvSide, steps: usize) -> Ahead {
        let next = start + TILE;
        if self.block_tokens() != TILE || next / TILE >= self.blocks.len() {
            return Ahead::NONE;
        }
        let (dim, format) = match side {
            KvSide::K => (self.group.k_dim as usize, self.group.k_format),
            KvSide::V => (self.group.v_dim as usize, self.group.v_format),
        };
        let words = TILE * dim * format.element_bytes() as usize / 4;
        let base = self.base(next, side, 4);
        let address = self.cells.pairs.get(base..base + words).as_ptr().cast();
        Ahead { address, bytes: 4 * words / steps }
    }

    /// K of the tile that starts at a position, as [dim][position] or [dim / 2][position] pairs; lanes of positions past `end`
    /// hold anything.
    #[inline(always)]
    pub(super) fn k_tile<S: Simd>(
        &self,
        simd: S,
        start: usize,
        end: usize,
        rows: usize,
        floats: &'a mut [f32],
        pairs: &'a mut [u32],
    ) -> Tile<'a> {
        let format = self.group.k_format;
        let dim = self.group.k_dim as usize;
        let in_place = self.block_tokens() >= TILE
            && match format {
                KvFormat::F16 => rows <= FEW_ROWS,
                KvFormat::F32 | KvFormat::BF16 => rows <= FEW_ROWS || 4 * self.block_tokens() <= NEAR,
            };
        match format {
            KvFormat::F32 if in_place => Tile::F32(self.k_in_place(self.cells.singles, start, dim)),
            KvFormat::F16 if in_place => Tile::F16(self.k_in_place(self.cells.halves, start, dim)),
            KvFormat::BF16 if in_place => Tile::BF16(self.k_in_place(self.cells.pairs, start, dim / 2)),
            KvFormat::F32 => {
                self.copy_k(simd, self.cells.singles, start..end, dim, floats);
                Tile::F32(Matrix {
                    values: floats,
                    stride: TILE,
                    column: 0,
                    first: 0,
                    ahead: self.ahead(start, KvSide::K, dim),
                })
            }
            KvFormat::F16 => {
                self.copy_k(simd, self.cells.halves, start..end, dim, floats);
                Tile::F32(Matrix {
                    values: floats,
                    stride: TILE,
                    column: 0,
                    first: 0,
                    ahead: self.ahead(start, KvSide::K, dim),
                })
            }
            KvFormat::BF16 => {
                self.copy_k(simd, self.cells.pairs, start..end, dim / 2, pairs);
                Tile::BF16(Matrix {
                    values: pairs,
                    stride: TILE,
                    column: 0,
                    first: 0,
                    ahead: self.ahead(start, KvSide::K, dim / 2),
                })
            }
        }
    }

    #[inline(always)]
    fn k_in_place<T: Copy>(&self, memory: SharedSlice<'a, T>, start: usize, steps: usize) -> Matrix<'a, T> {
        let stride = self.block_tokens();
        let base = self.base(start, KvSide::K, size_of::<T>());
        let values = memory.get(base..base + steps * stride);
        Matrix {
            values,
            stride,
            column: start % stride,
            first: 0,
            ahead: self.ahead(start, KvSide::K, steps),
        }
    }

    #[inline(always)]
    fn copy_k<S: Simd, T: Copied<U>, U>(
        &self,
        simd: S,
        memory: SharedSlice<'a, T>,
        positions: Range<usize>,
        steps: usize,
        to: &mut [U],
    ) {
        let (stride, first) = (self.block_tokens(), positions.start);
        let run = TILE.min(stride);
        for start in positions.step_by(run) {
            let base = self.base(start, KvSide::K, size_of::<T>());
            let (head, column) = (memory.get(base..base + steps * stride), start % stride);
            if stride == TILE {
                T::copy(simd, head, &mut to[..steps * TILE]);
                continue;
            }
            for (from, to) in head.chunks_exact(stride).zip(to.chunks_exact_mut(TILE)) {
                T::copy(simd, &from[column..column + run], &mut to[start - first..start - first + run]);
            }
        }
    }

    /// V of the tile that starts at a position, as [position][width] or [position / 2][width] pairs; rows of positions outside of
    /// `seen` hold anything.
    #[inline(always)]
    pub(super) fn v_tile<S: Simd>(
        &self,
        simd: S,
        start: usize,
        seen: Range<usize>,
        rows: usize,
        floats: &'a mut [f32],
        pairs: &'a mut [u32],
    ) -> Tile<'a> {
        let format = self.group.v_format;
        let dim = self.group.v_dim as usize;
        let width = dim.next_multiple_of(LANES);
        let in_place =
            self.block_tokens() >= TILE && dim == width && (format != KvFormat::F16 || rows <= FEW_ROWS);
        match format {
            KvFormat::F32 if in_place => Tile::F32(self.v_in_place(self.cells.singles, start, TILE)),
            KvFormat::F16 if in_place => Tile::F16(self.v_in_place(self.cells.halves, start, TILE)),
            KvFormat::BF16 if in_place => Tile::BF16(self.v_in_place(self.cells.pairs, start, TILE / 2)),
            KvFormat::F32 => {
                self.copy_v(simd, self.cells.singles, start, seen, 1, floats);
                Tile::F32(Matrix {
                    values: floats,
                    stride: width,
                    column: 0,
                    first: 0,
                    ahead: self.ahead(start, KvSide::V, TILE),
                })
            }
            KvFormat::F16 => {
                self.copy_v(simd, self.cells.halves, start, seen, 1, floats);
                Tile::F32(Matrix {
                    values: floats,
                    stride: width,
                    column: 0,
                    first: 0,
                    ahead: self.ahead(start, KvSide::V, TILE),
                })
            }
            KvFormat::BF16 => {
                self.copy_v(simd, self.cells.pairs, start, seen, 2, pairs);
                Tile::BF16(Matrix {
                    values: pairs,
                    stride: width,
                    column: 0,
                    first: 0,
                    ahead: self.ahead(start, KvSide::V, TILE / 2),
                })
            }
        }
    }

    #[inline(always)]
    fn v_in_place<T: Copy>(&self, memory: SharedSlice<'a, T>, start: usize, steps: usize) -> Matrix<'a, T> {
        let stride = self.group.v_dim as usize;
        let step = start % self.block_tokens() * steps / TILE;
        let base = self.base(start, KvSide::V, size_of::<T>()) + step * stride;
        let values = memory.get(base..base + steps * stride);
        Matrix { values, stride, column: 0, first: 0, ahead: self.ahead(start, KvSide::V, steps) }
    }

    /// Copies the rows of seen positions, `together` positions a row.
    #[inline(always)]
    fn copy_v<S: Simd, T: Copied<U>, U>(
        &self,
        simd: S,
        memory: SharedSlice<'a, T>,
        start: usize,
        seen: Range<usize>,
        together: usize,
        to: &mut [U],
    ) {
        let dim = self.group.v_dim as usize;
        let width = dim.next_multiple_of(LANES);
        let last = seen.end.div_ceil(together);
        let mut step = seen.start / together;
        while step < last {
            // As far as the block goes.
            let position = start + step * together;
            let offset = position % self.block_tokens();
            let rows = (last - step).min((self.block_tokens() - offset) / together);
            let base = self.base(position, KvSide::V, size_of::<T>()) + offset / together * dim;
            let from = memory.get(base..base + rows * dim);
            let to = &mut to[step * width..(step + rows) * width];
            if dim == width {
                T::copy(simd, from, to);
            } else {
                for (from, to) in from.chunks_exact(dim).zip(to.chunks_exact_mut(width)) {
                    T::copy(simd, from, &mut to[..dim]);
                }
            }
            step += rows;
        }
    }
}

/// Stored elements that a copied tile holds as `U`.
trait Copied<U>: Copy {
    /// As many as there are.
    fn copy<S: Simd>(simd: S, from: &[Self], to: &mut [U]);
}

impl Copied<f32> for f32 {
    #[inline(always)]
    fn copy<S: Simd>(_simd: S, from: &[f32], to: &mut [f32]) {
        to.copy_from_slice(from);
    }
}

impl Copied<f32> for u16 {
    #[inline(always)]
    fn copy<S: Simd>(simd: S, from: &[u16], to: &mut [f32]) {
        widen(simd, from, to);
    }
}

impl Copied<u32> for u32 {
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
