//! Checks a batch before it reaches a backend. A backend may trust every number of a checked batch.

use crate::batch::{BlockTable, EVICTED, KvRun};
use crate::{Batch, Extents, KvGroupBatch, KvGroupSpec, KvSpec, ModelGraph, SequenceView};

/// Why a batch is refused. Nothing has run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// No tokens or no sequences.
    #[error("the batch is empty")]
    Empty,
    /// More of something than was planned for.
    #[error("the batch has {found} {what}, planned are at most {limit}")]
    TooMany {
        /// `tokens`, `sequences` or `output rows`.
        what: &'static str,
        /// In the batch.
        found: usize,
        /// Planned.
        limit: u32,
    },
    /// Two lists that must be of one length.
    #[error("{what}: {found} entries, expected {expected}")]
    Length {
        /// Which list.
        what: String,
        /// Entries that it must have.
        expected: usize,
        /// Entries that it has.
        found: usize,
    },
    /// A token outside the vocabulary.
    #[error("row {row}: token {token} is outside of the vocabulary of {vocabulary}")]
    Token {
        /// The row.
        row: usize,
        /// The token id.
        token: u32,
        /// Tokens in the vocabulary.
        vocabulary: u32,
    },
    /// A position that the model has no embedding for.
    #[error("row {row}: position {position} is outside of the {positions} that the model has rows for")]
    NoPosition {
        /// The row.
        row: usize,
        /// The position.
        position: u32,
        /// Rows of the table.
        positions: u32,
    },
    /// Rows that do not follow on the previous sequence's, or are none.
    #[error(
        "sequence {sequence} has rows {start}..{end}, expected one or more from {expected} on, within {tokens}"
    )]
    SequenceRows {
        /// The sequence's index in the batch.
        sequence: usize,
        /// Its first row.
        start: u32,
        /// One past its last row.
        end: u32,
        /// Where it must start.
        expected: u32,
        /// Rows of the batch.
        tokens: usize,
    },
    /// The last sequence ends before the last row.
    #[error("the sequences cover {covered} of {tokens} rows")]
    Uncovered {
        /// Rows covered.
        covered: u32,
        /// Rows of the batch.
        tokens: usize,
    },
    /// A position that does not follow the cached ones.
    #[error("row {row} (sequence {sequence}) is at position {found}, expected {expected}")]
    Position {
        /// The row.
        row: usize,
        /// The sequence's index in the batch.
        sequence: usize,
        /// Cached positions plus the row's index in its sequence.
        expected: u64,
        /// The position given.
        found: u32,
    },
    /// A block table that ends before the sequence does.
    #[error(
        "group {group}, sequence {sequence}: {found} blocks hold less than {length} positions, {expected} are needed"
    )]
    ShortTable {
        /// The KV group.
        group: usize,
        /// The sequence's index in the batch.
        sequence: usize,
        /// Positions once this step's rows are stored.
        length: u64,
        /// Blocks needed.
        expected: usize,
        /// Blocks given.
        found: usize,
    },
    /// Runs of a table that do not follow one another or leave their block.
    #[error(
        "group {group}, sequence {sequence}: run {run} of the block table does not follow the one before it or leaves its block"
    )]
    Run {
        /// The KV group.
        group: usize,
        /// The sequence's index in the batch.
        sequence: usize,
        /// The run's index.
        run: usize,
    },
    /// A block beyond the arena, or one that was evicted though it is still seen.
    #[error("group {group}, sequence {sequence}: block {block} is outside of the arena of {blocks} blocks")]
    Block {
        /// The KV group.
        group: usize,
        /// The sequence's index in the batch.
        sequence: usize,
        /// The block.
        block: u32,
        /// Blocks of the group.
        blocks: u32,
    },
    /// A cell that is not where the block table puts the row's position.
    #[error("group {group}, row {row}: cell {found}, the block table says {}", expected.map_or("none".to_owned(), |cell| cell.to_string()))]
    Cell {
        /// The KV group.
        group: usize,
        /// The row.
        row: usize,
        /// By the block table; none where it has no cell that a new row may go to.
        expected: Option<u32>,
        /// The cell given.
        found: u32,
    },
    /// Two rows that would be stored in one cell.
    #[error("group {group}: two rows go to cell {cell}")]
    SharedCell {
        /// The KV group.
        group: usize,
        /// The cell.
        cell: u32,
    },
    /// An output row beyond the batch.
    #[error("output row {row} is outside of the {tokens} rows of the batch")]
    OutputRow {
        /// The row asked for.
        row: u32,
        /// Rows of the batch.
        tokens: usize,
    },
}

/// The limits for batches, with scratch memory that is reused.
#[derive(Debug)]
pub struct BatchCheck {
    extents: Extents,
    vocabulary: u32,
    most_positions: u32,
    spec: KvSpec,
    cells: Vec<u32>,
}

impl BatchCheck {
    /// Limits of batches for a model graph over an arena of `spec`.
    pub fn new(extents: Extents, model_graph: &ModelGraph, spec: KvSpec) -> BatchCheck {
        BatchCheck {
            extents,
            vocabulary: model_graph.input_vocabulary(),
            most_positions: model_graph.input_positions(),
            spec,
            cells: Vec::with_capacity(extents.tokens as usize),
        }
    }

    /// Checks a batch for a run of the body. Any number of output rows may be named.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn body(&mut self, batch: &Batch<'_>) -> Result<(), BatchError> {
        let tokens = batch.token_ids.len();
        if tokens == 0 || batch.sequences.is_empty() {
            return Err(BatchError::Empty);
        }
        at_most("tokens", tokens, self.extents.tokens)?;
        at_most("sequences", batch.sequences.len(), self.extents.sequences)?;
        expect_length("positions", batch.positions.len(), tokens)?;
        expect_length("KV groups", batch.kv.len(), self.spec.groups.len())?;
        let vocabulary = self.vocabulary;
        if let Some(row) = batch.token_ids.iter().position(|&token| token >= vocabulary) {
            return Err(BatchError::Token { row, token: batch.token_ids[row], vocabulary });
        }
        let positions = self.most_positions;
        if let Some(row) = batch.positions.iter().position(|&position| position >= positions) {
            return Err(BatchError::NoPosition { row, position: batch.positions[row], positions });
        }
        check_sequences(batch)?;
        for (group, rows) in batch.kv.iter().enumerate() {
            self.group(batch, group, rows)?;
        }
        check_output_rows(batch)
    }

    /// Checks the output rows of a batch, already checked for the body, for one run of the head.
    ///
    /// # Errors
    /// No output rows, too many, or one outside of the batch.
    pub fn head(&self, batch: &Batch<'_>) -> Result<(), BatchError> {
        if batch.output_rows.is_empty() {
            return Err(BatchError::Empty);
        }
        at_most("output rows", batch.output_rows.len(), self.extents.rows)?;
        check_output_rows(batch)
    }

    /// Checks that a table holds every position that the rows of a sequence may read.
    fn table(
        &self,
        group: usize,
        sequence: usize,
        view: &SequenceView,
        table: BlockTable<'_>,
    ) -> Result<(), BatchError> {
        let KvGroupSpec { block_tokens, window, .. } = self.spec.groups[group];
        let blocks = self.spec.max_blocks[group];
        let length = u64::from(view.cached) + u64::from(view.rows.end - view.rows.start);
        // The first position that a row of this step sees.
        let seen = window.map_or(0, |window| (view.cached + 1).saturating_sub(window));
        let usable = |block: u32, end: u64| block < blocks || (block == EVICTED && end <= u64::from(seen));
        let expected = length.div_ceil(u64::from(block_tokens)) as usize;
        let found = match table {
            BlockTable::Aligned(entries) => {
                let end = |index: usize| (index as u64 + 1) * u64::from(block_tokens);
                let needed = &entries[..expected.min(entries.len())];
                if let Some(index) = (0..needed.len()).find(|&index| !usable(needed[index], end(index))) {
                    return Err(BatchError::Block { group, sequence, block: needed[index], blocks });
                }
                entries.len()
            }
            BlockTable::Shifted(runs) => {
                if let Some(run) = broken_run(runs, block_tokens) {
                    return Err(BatchError::Run { group, sequence, run });
                }
                if let Some(run) = runs.iter().find(|run| !usable(run.block, u64::from(run.end()))) {
                    return Err(BatchError::Block { group, sequence, block: run.block, blocks });
                }
                table.positions(block_tokens).div_ceil(u64::from(block_tokens)) as usize
            }
        };
        if table.positions(block_tokens) < length {
            return Err(BatchError::ShortTable { group, sequence, length, expected, found });
        }
        Ok(())
    }

    fn group(&mut self, batch: &Batch<'_>, group: usize, rows: &KvGroupBatch<'_>) -> Result<(), BatchError> {
        expect_length(&format!("cells of group {group}"), rows.cells.len(), batch.token_ids.len())?;
        let what = format!("block tables of group {group}");
        expect_length(&what, rows.block_tables.len(), batch.sequences.len())?;
        for (sequence, (view, &table)) in batch.sequences.iter().zip(rows.block_tables).enumerate() {
            self.table(group, sequence, view, table)?;
            let block_tokens = self.spec.groups[group].block_tokens;
            for row in view.rows.start as usize..view.rows.end as usize {
                let place = table.place(batch.positions[row], block_tokens);
                let place = place.filter(|place| place.rope_offset == 0);
                let expected = place.map(|place| place.cell(block_tokens));
                let found = rows.cells[row];
                if expected != Some(found) {
                    return Err(BatchError::Cell { group, row, expected, found });
                }
            }
        }
        self.cells.clear();
        self.cells.extend_from_slice(rows.cells);
        self.cells.sort_unstable();
        match self.cells.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(BatchError::SharedCell { group, cell: pair[0] }),
            None => Ok(()),
        }
    }
}

/// Where the runs of a table do not follow one another or leave their blocks.
fn broken_run(runs: &[KvRun], block_tokens: u32) -> Option<usize> {
    let mut next = 0;
    runs.iter().position(|run| {
        let follows = run.start == std::mem::replace(&mut next, run.start.saturating_add(run.rows));
        let inside =
            run.block == EVICTED || run.offset.checked_add(run.rows).is_some_and(|end| end <= block_tokens);
        !follows || !inside || run.rows == 0 || run.start.checked_add(run.rows).is_none()
    })
}

fn check_sequences(batch: &Batch<'_>) -> Result<(), BatchError> {
    let tokens = batch.token_ids.len();
    let mut expected = 0;
    for (sequence, view) in batch.sequences.iter().enumerate() {
        let (start, end) = (view.rows.start, view.rows.end);
        if start != expected || end <= start || end as usize > tokens {
            return Err(BatchError::SequenceRows { sequence, start, end, expected, tokens });
        }
        for row in start..end {
            let position = u64::from(view.cached) + u64::from(row - start);
            let found = batch.positions[row as usize];
            if u64::from(found) != position {
                return Err(BatchError::Position { row: row as usize, sequence, expected: position, found });
            }
        }
        expected = end;
    }
    match expected as usize == tokens {
        true => Ok(()),
        false => Err(BatchError::Uncovered { covered: expected, tokens }),
    }
}

fn check_output_rows(batch: &Batch<'_>) -> Result<(), BatchError> {
    let tokens = batch.token_ids.len();
    match batch.output_rows.iter().find(|&&row| row as usize >= tokens) {
        Some(&row) => Err(BatchError::OutputRow { row, tokens }),
        None => Ok(()),
    }
}

fn at_most(what: &'static str, found: usize, limit: u32) -> Result<(), BatchError> {
    if found > limit as usize { Err(BatchError::TooMany { what, found, limit }) } else { Ok(()) }
}

fn expect_length(what: &str, found: usize, expected: usize) -> Result<(), BatchError> {
    if found == expected {
        return Ok(());
    }
    Err(BatchError::Length { what: what.to_owned(), expected, found })
}
