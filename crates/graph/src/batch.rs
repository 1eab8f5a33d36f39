//! The input of one forward pass: tokens, positions, KV cells, block tables and output rows.

use std::ops::Range;

/// The input of one step, borrowed. Nothing else changes from step to step.
#[derive(Debug, Clone, Copy)]
pub struct Batch<'a> {
    /// Token ids, one per row of the body. A sequence's tokens are neighbours, in order.
    pub token_ids: &'a [u32],
    /// Each token's index in its own sequence.
    pub positions: &'a [u32],
    /// Which rows belong to which sequence; together they cover all rows, in order.
    pub sequences: &'a [SequenceView],
    /// Cells and block tables, one entry per KV group.
    pub kv: &'a [KvGroupBatch<'a>],
    /// Rows of the body's output that the head computes logits for.
    pub output_rows: &'a [u32],
}

/// A sequence's share of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequenceView {
    /// Its rows in the batch.
    pub rows: Range<u32>,
    /// Positions that were in the cache before this step; the first row's position.
    pub cached: u32,
}

impl SequenceView {
    /// Positions in the cache once this step's rows are stored.
    pub fn length(&self) -> u32 {
        self.cached + (self.rows.end - self.rows.start)
    }
}

/// Cells and block tables of one KV group.
#[derive(Debug, Clone, Copy)]
pub struct KvGroupBatch<'a> {
    /// For each row of the batch the cell that its K and V go to: block index x block_tokens +
    /// offset.
    pub cells: &'a [u32],
    /// For each sequence where its positions lie.
    pub block_tables: &'a [BlockTable<'a>],
}

/// Block table entry of an evicted block: no later query sees its positions.
pub const EVICTED: u32 = u32::MAX;

/// The block table of one sequence in one KV group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockTable<'a> {
    /// Entry `p / block_tokens` is the block that holds position `p`, at offset `p % block_tokens`,
    /// or [`EVICTED`]. Rows were rotated at their position.
    Aligned(&'a [u32]),
    /// Runs of rows in order, after a context shift. Together they cover every position of the
    /// sequence once.
    Shifted(&'a [KvRun]),
}

/// Consecutive rows of one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KvRun {
    /// Position of the first row.
    pub start: u32,
    /// Rows.
    pub rows: u32,
    /// The block, or [`EVICTED`].
    pub block: u32,
    /// The first row's offset in the block.
    pub offset: u32,
    /// The rows were rotated at their position plus this.
    pub rope_offset: u32,
}

/// Where the K and V rows of one position are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvPlace {
    /// The block.
    pub block: u32,
    /// The offset in the block.
    pub offset: u32,
    /// The row was rotated at its position plus this.
    pub rope_offset: u32,
}

impl KvRun {
    /// One past the position of the last row.
    pub fn end(&self) -> u32 {
        self.start + self.rows
    }
}

impl BlockTable<'_> {
    /// Positions that the table has room for, the evicted ones included.
    pub fn positions(&self, block_tokens: u32) -> u64 {
        match self {
            BlockTable::Aligned(blocks) => blocks.len() as u64 * u64::from(block_tokens),
            BlockTable::Shifted(runs) => runs.last().map_or(0, |run| u64::from(run.end())),
        }
    }

    /// Where a position lies; `None` where it is past the end or evicted.
    pub fn place(&self, position: u32, block_tokens: u32) -> Option<KvPlace> {
        let place = match self {
            BlockTable::Aligned(blocks) => KvPlace {
                block: *blocks.get((position / block_tokens) as usize)?,
                offset: position % block_tokens,
                rope_offset: 0,
            },
            BlockTable::Shifted(runs) => {
                let run = &runs[runs.partition_point(|run| run.end() <= position)..].first()?;
                KvPlace {
                    block: run.block,
                    offset: run.offset + (position - run.start),
                    rope_offset: run.rope_offset,
                }
            }
        };
        (place.block != EVICTED).then_some(place)
    }
}

impl KvPlace {
    /// The cell: block x block_tokens + offset.
    pub fn cell(&self, block_tokens: u32) -> u32 {
        self.block * block_tokens + self.offset
    }
}
