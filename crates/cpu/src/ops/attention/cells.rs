//! Where the rows of one KV head lie in the cache, by the block table of a sequence.

use std::ops::Range;

use minfer_graph::{BlockTable, EVICTED, KvFormat, KvGroupSpec, KvOrder, KvSide, KvStrides};

use super::plan::{Block, Item};
use super::products::Ahead;
use super::{AttentionArgs, TILE};
use crate::arena::KvCells;

/// Neighbouring rows of a tile in one block.
pub(super) struct Piece {
    /// Counted from the tile's start.
    pub(super) rows: Range<usize>,
    pub(super) block: usize,
    /// Offset of the first row in the block.
    pub(super) offset: usize,
    /// What K was rotated at beyond its position.
    rope_offset: u32,
}

/// One side of one KV head in every block of a layer.
#[derive(Clone, Copy)]
pub(super) struct Side {
    pub(super) format: KvFormat,
    pub(super) dim: usize,
    pub(super) order: KvOrder,
    pub(super) strides: KvStrides,
    /// Byte of the head's first unit in a block.
    pub(super) start: usize,
    /// Of them those that the head is behind a row's start.
    pub(super) column: usize,
}

impl Side {
    fn new(group: &KvGroupSpec, layer_index: usize, kv_head: usize, side: KvSide) -> Side {
        let (dim, format) = group.side(side);
        let strides = group.strides(side);
        let start = group.side_offset(layer_index, side) as usize + strides.at(kv_head, 0, 0);
        let column = if strides.head < strides.position { kv_head * strides.head } else { 0 };
        Side { format, dim: dim as usize, order: group.order(side), strides, start, column }
    }

    /// Byte of a row's first unit, counted from the block's start.
    pub(super) fn row(&self, offset: usize) -> usize {
        self.start + self.strides.at(0, offset, 0)
    }
}

/// One KV head of one sequence in one layer.
#[derive(Clone, Copy)]
pub(super) struct HeadCells<'a> {
    pub(super) cells: KvCells<'a>,
    table: BlockTable<'a>,
    pub(super) block_tokens: usize,
    pub(super) block_bytes: usize,
    pub(super) k: Side,
    pub(super) v: Side,
    /// End of the positions that the item computes.
    end: usize,
    /// K of the first tile of the next item.
    next: Ahead,
}

impl<'a> HeadCells<'a> {
    /// The cells of an item's KV head; `next` is computed after it.
    pub(super) fn new(args: &AttentionArgs<'a>, item: &Item, next: Option<&Item>) -> HeadCells<'a> {
        let next = next.map_or(Ahead::NONE, |next| {
            let cells = HeadCells::of_block(args, &next.block);
            cells.tile(next.positions(args).start / TILE, &cells.k, TILE)
        });
        HeadCells { end: item.positions(args).end, next, ..HeadCells::of_block(args, &item.block) }
    }

    fn of_block(args: &AttentionArgs<'a>, block: &Block) -> HeadCells<'a> {
        let side = |side| Side::new(args.group, args.layer_index, block.kv_head, side);
        HeadCells {
            cells: args.cells,
            table: args.batch.kv[args.group_index].block_tables[block.sequence],
            block_tokens: args.group.block_tokens as usize,
            block_bytes: args.group.bytes_per_block() as usize,
            k: side(KvSide::K),
            v: side(KvSide::V),
            end: 0,
            next: Ahead::NONE,
        }
    }

    /// The rows from `rows.start` on that are neighbours in one block, at most to `rows.end`.
    #[inline(always)]
    fn piece(&self, start: usize, rows: Range<usize>) -> Piece {
        let position = start + rows.start;
        let (block, offset, most, rope_offset) = match self.table {
            BlockTable::Aligned(blocks) => {
                let offset = position % self.block_tokens;
                (blocks[position / self.block_tokens], offset, self.block_tokens - offset, 0)
            }
            BlockTable::Shifted(runs) => {
                let run = runs[runs.partition_point(|run| run.end() as usize <= position)];
                let into = position - run.start as usize;
                (run.block, run.offset as usize + into, run.rows as usize - into, run.rope_offset)
            }
        };
        assert!(block != EVICTED, "position {position} is seen but was evicted");
        let rows = rows.start..rows.end.min(rows.start + most);
        Piece { rows, block: block as usize, offset, rope_offset }
    }

    /// The pieces of some rows of the tile that starts at a position, in order.
    pub(super) fn pieces(&self, start: usize, rows: Range<usize>) -> impl Iterator<Item = Piece> + use<'a> {
        let (cells, mut next) = (*self, rows.start);
        std::iter::from_fn(move || {
            let piece = (next < rows.end).then(|| cells.piece(start, next..rows.end))?;
            next = piece.rows.end;
            Some(piece)
        })
    }

    /// Runs of the rows of a tile with the rope offset of each.
    pub(super) fn rope_offsets(
        &self,
        start: usize,
        rows: Range<usize>,
    ) -> impl Iterator<Item = (Range<usize>, u32)> + use<'a> {
        let (cells, mut next) = (*self, rows.start);
        std::iter::from_fn(move || {
            let mut pieces = cells.pieces(start, next..rows.end);
            let Piece { rows: first, rope_offset, .. } = pieces.next()?;
            let alike = pieces.take_while(|piece| piece.rope_offset == rope_offset);
            let end = alike.last().map_or(first.end, |piece| piece.rows.end);
            next = end;
            Some((first.start..end, rope_offset))
        })
    }

    /// The block in which all of the tile lies as if its rows were neighbours, and the offset of
    /// its start.
    #[inline(always)]
    pub(super) fn one_block(&self, start: usize, seen: &Range<usize>) -> Option<(usize, usize)> {
        let piece = self.piece(start, seen.clone());
        let offset = piece.offset.checked_sub(piece.rows.start)?;
        let fits = piece.rows.end == seen.end && offset + TILE <= self.block_tokens;
        fits.then_some((piece.block, offset))
    }

    /// What is wanted while K of a tile is multiplied: its V.
    #[inline(always)]
    pub(super) fn ahead_of_k(&self, start: usize, steps: usize) -> Ahead {
        self.tile(start / TILE, &self.v, steps)
    }

    /// What is wanted while V of a tile is multiplied: K of the next tile, or of the next item.
    #[inline(always)]
    pub(super) fn ahead_of_v(&self, start: usize, steps: usize) -> Ahead {
        if start + TILE < self.end {
            return self.tile(start / TILE + 1, &self.k, steps);
        }
        Ahead { bytes: self.next.bytes * TILE / steps, ..self.next }
    }

    /// One side of a tile in a number of steps; nothing where a tile of the head is no run of
    /// memory.
    #[inline(always)]
    fn tile(&self, index: usize, side: &Side, steps: usize) -> Ahead {
        let BlockTable::Aligned(blocks) = self.table else { return Ahead::NONE };
        let near = side.strides.head >= side.strides.pair;
        if self.block_tokens != TILE || index >= blocks.len() || blocks[index] == EVICTED || !near {
            return Ahead::NONE;
        }
        let base = (blocks[index] as usize * self.block_bytes + side.start) / 4;
        let words = side.strides.head / 4;
        // A table may have more entries than the sequence needs, and the batch's check reads only
        // those.
        if base + words > self.cells.pairs.len() {
            return Ahead::NONE;
        }
        let address = self.cells.pairs.get(base..base + words).as_ptr().cast();
        Ahead { address, bytes: 4 * words / steps }
    }
}
