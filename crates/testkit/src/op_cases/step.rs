//! Batches of a case, with their own lists.

use minfer_graph::{Batch, BlockTable, KvGroupBatch, SequenceView};

/// Positions of a KV block in every case.
pub(super) const BLOCK_TOKENS: u32 = 16;

/// One batch. Every row has a token id of its own, so it reads a row of its own from an operand's
/// table.
pub(super) struct Step {
    token_ids: Vec<u32>,
    positions: Vec<u32>,
    sequences: Vec<SequenceView>,
    cells: Vec<u32>,
    tables: Vec<Vec<u32>>,
    output_rows: Vec<u32>,
}

/// A sequence's part of a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// Positions before the step.
    pub(super) cached: u32,
    /// Tokens of the step.
    pub(super) tokens: u32,
}

/// The steps of some sequences: `lengths[sequence]` tokens at once, then `decodes` steps of one
/// token each.
pub(super) fn prefill_and_decode(lengths: &[u32], decodes: u32) -> Vec<Vec<Part>> {
    let prefill = lengths.iter().map(|&tokens| Part { cached: 0, tokens }).collect();
    let decode = |step| lengths.iter().map(|&length| Part { cached: length + step, tokens: 1 }).collect();
    std::iter::once(prefill).chain((0..decodes).map(decode)).collect()
}

/// One step of one sequence from position 0 on.
pub(super) fn tokens(count: u32) -> Vec<Vec<Part>> {
    vec![vec![Part { cached: 0, tokens: count }]]
}

/// Batches for these parts, and the number of tokens and of KV blocks in them. Blocks of a sequence
/// lie apart and in descending order.
pub(super) fn steps(parts: &[Vec<Part>], has_kv: bool) -> (Vec<Step>, u32, u32) {
    let sequences = parts.iter().map(Vec::len).max().unwrap_or(0) as u32;
    let length = parts.iter().flatten().map(|part| part.cached + part.tokens).max().unwrap_or(0);
    let blocks = if has_kv { sequences * length.div_ceil(BLOCK_TOKENS) } else { 0 };
    let mut next = 0;
    let mut made = Vec::new();
    for parts in parts {
        let first = next;
        let mut step = Step::empty();
        for (sequence, part) in parts.iter().enumerate() {
            let end = part.cached + part.tokens;
            let used = if has_kv { end.div_ceil(BLOCK_TOKENS) } else { 0 };
            let table: Vec<u32> =
                (0..used).map(|index| blocks - 1 - (index * sequences + sequence as u32)).collect();
            for position in part.cached..end {
                step.token_ids.push(next);
                step.positions.push(position);
                if let Some(block) = table.get((position / BLOCK_TOKENS) as usize) {
                    step.cells.push(block * BLOCK_TOKENS + position % BLOCK_TOKENS);
                }
                next += 1;
            }
            let rows = next - first - part.tokens..next - first;
            step.sequences.push(SequenceView { rows, cached: part.cached });
            step.tables.push(table);
        }
        // The last row, then the first: neither all rows nor in order.
        step.output_rows = vec![next - first - 1, 0];
        made.push(step);
    }
    (made, next, blocks)
}

impl Step {
    fn empty() -> Step {
        Step {
            token_ids: Vec::new(),
            positions: Vec::new(),
            sequences: Vec::new(),
            cells: Vec::new(),
            tables: Vec::new(),
            output_rows: Vec::new(),
        }
    }

    pub(super) fn n_tokens(&self) -> u32 {
        self.token_ids.len() as u32
    }

    pub(super) fn n_rows(&self) -> u32 {
        self.output_rows.len() as u32
    }

    pub(super) fn n_sequences(&self) -> u32 {
        self.sequences.len() as u32
    }

    /// Cells that the step stores to.
    pub(super) fn cells(&self) -> &[u32] {
        &self.cells
    }

    /// Runs `use_batch` on the batch of a cache with `groups` groups.
    pub(super) fn with<R>(&self, groups: usize, use_batch: impl FnOnce(&Batch<'_>) -> R) -> R {
        let tables: Vec<_> = self.tables.iter().map(|table| BlockTable::Aligned(table)).collect();
        let kv = vec![KvGroupBatch { cells: &self.cells, block_tables: &tables }; groups];
        use_batch(&Batch {
            token_ids: &self.token_ids,
            positions: &self.positions,
            sequences: &self.sequences,
            kv: &kv,
            output_rows: &self.output_rows,
        })
    }
}
