//! Where a tile's K and V lie, and their copy where kernels cannot read them in place.

use std::ops::Range;

use minfer_graph::{KvFormat, KvGroupSpec, KvSide};

use super::TILE;
use super::products::Matrix;
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
            Tile::F32(matrix) => Tile::F32(Matrix { ahead: 0, ..matrix }),
            Tile::F16(matrix) => Tile::F16(Matrix { ahead: 0, ..matrix }),
            Tile::BF16(matrix) => Tile::BF16(Matrix { ahead: 0, ..matrix }),
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

    /// Bytes from one side of the tile that starts at a position to the tile after it, where blocks are tiles; else 0.
    fn ahead(&self, start: usize, side: KvSide) -> isize {
        let next = start + TILE;
        if self.block_tokens() != TILE || next / TILE >= self.blocks.len() {
            return 0;
        }
        self.base(next, side, 1) as isize - self.base(start, side, 1) as isize
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
                self.copy_k(self.cells.singles, start..end, dim, floats, |from, to| to.copy_from_slice(from));
                Tile::F32(Matrix { values: floats, stride: TILE, column: 0, first: 0, ahead: 0 })
            }
            KvFormat::F16 => {
                self.copy_k(self.cells.halves, start..end, dim, floats, |from, to| widen(simd, from, to));
                Tile::F32(Matrix { values: floats, stride: TILE, column: 0, first: 0, ahead: 0 })
            }
            KvFormat::BF16 => {
                self.copy_k(self.cells.pairs, start..end, dim / 2, pairs, |from, to| {
                    to.copy_from_slice(from)
                });
                Tile::BF16(Matrix { values: pairs, stride: TILE, column: 0, first: 0, ahead: 0 })
            }
        }
    }

    #[inline(always)]
    fn k_in_place<T: Copy>(&self, memory: SharedSlice<'a, T>, start: usize, steps: usize) -> Matrix<'a, T> {
        let stride = self.block_tokens();
        let base = self.base(start, KvSide::K, size_of::<T>());
        let values = memory.get(base..base + steps * stride);
        Matrix { values, stride, column: start % stride, first: 0, ahead: self.ahead(start, KvSide::K) }
    }

    #[inline(always)]
    fn copy_k<T: Copy, U>(
        &self,
        memory: SharedSlice<'a, T>,
        positions: Range<usize>,
        steps: usize,
        to: &mut [U],
        convert: impl Fn(&[T], &mut [U]),
    ) {
        let (stride, first) = (self.block_tokens(), positions.start);
        let run = TILE.min(stride);
        for start in positions.step_by(run) {
            let base = self.base(start, KvSide::K, size_of::<T>()) + start % stride;
            for (step, row) in to.chunks_exact_mut(TILE).take(steps).enumerate() {
                let from = memory.get(base + step * stride..base + step * stride + run);
                convert(from, &mut row[start - first..start - first + run]);
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
                self.copy_v(self.cells.singles, start, seen, 1, floats, |from, to| to.copy_from_slice(from));
                Tile::F32(Matrix { values: floats, stride: width, column: 0, first: 0, ahead: 0 })
            }
            KvFormat::F16 => {
                self.copy_v(self.cells.halves, start, seen, 1, floats, |from, to| widen(simd, from, to));
                Tile::F32(Matrix { values: floats, stride: width, column: 0, first: 0, ahead: 0 })
            }
            KvFormat::BF16 => {
                self.copy_v(self.cells.pairs, start, seen, 2, pairs, |from, to| to.copy_from_slice(from));
                Tile::BF16(Matrix { values: pairs, stride: width, column: 0, first: 0, ahead: 0 })
            }
        }
    }

    #[inline(always)]
    fn v_in_place<T: Copy>(&self, memory: SharedSlice<'a, T>, start: usize, steps: usize) -> Matrix<'a, T> {
        let stride = self.group.v_dim as usize;
        let step = start % self.block_tokens() * steps / TILE;
        let base = self.base(start, KvSide::V, size_of::<T>()) + step * stride;
        let values = memory.get(base..base + steps * stride);
        Matrix { values, stride, column: 0, first: 0, ahead: self.ahead(start, KvSide::V) }
    }

    /// Copies the rows of seen positions, `together` positions a row.
    #[inline(always)]
    fn copy_v<T: Copy, U>(
        &self,
        memory: SharedSlice<'a, T>,
        start: usize,
        seen: Range<usize>,
        together: usize,
        to: &mut [U],
        convert: impl Fn(&[T], &mut [U]),
    ) {
        let dim = self.group.v_dim as usize;
        let width = dim.next_multiple_of(LANES);
        for step in seen.start / together..seen.end.div_ceil(together) {
            let position = start + step * together;
            let row = position % self.block_tokens() / together;
            let base = self.base(position, KvSide::V, size_of::<T>()) + row * dim;
            convert(memory.get(base..base + dim), &mut to[step * width..step * width + dim]);
        }
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
