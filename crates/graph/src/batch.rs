use std::ops::Range;

/// One step's data, borrowed. Everything that changes from step to step is here and nowhere else.
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

/// Where one KV group's rows lie.
#[derive(Debug, Clone, Copy)]
pub struct KvGroupBatch<'a> {
    /// For each row of the batch the cell that its K and V go to: block index x block_tokens + offset.
    pub cells: &'a [u32],
    /// For each sequence its blocks in order: entry `p / block_tokens` holds position `p`.
    pub block_tables: &'a [&'a [u32]],
}
