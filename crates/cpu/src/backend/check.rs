//! What memory safety needs of a batch.
//!
//! The executor checks much more (`minfer_graph::check`). But [`Compiled::submit`] is a safe
//! function that anyone can call, and a batch that names a cell or a row twice would have two
//! workers write the same memory. Indices that are out of range need no check here: every access
//! checks bounds.
//!
//! [`Compiled::submit`]: minfer_graph::backend::Compiled::submit

use minfer_graph::{BackendError, Batch, Extents};

/// Checks batches; keeps its memory from one to the next.
#[derive(Debug, Default)]
pub(super) struct BatchCheck {
    cells: Vec<u32>,
}

impl BatchCheck {
    /// The extents of a batch that a graph which was planned for `planned` can run.
    ///
    /// # Errors
    /// More than was planned for, or rows or cells that two workers would write.
    pub(super) fn extents(&mut self, batch: &Batch<'_>, planned: Extents) -> Result<Extents, BackendError> {
        let extents = Extents {
            tokens: count(batch.token_ids.len(), planned.tokens, "tokens")?,
            rows: count(batch.output_rows.len(), planned.rows, "output rows")?,
            sequences: count(batch.sequences.len(), planned.sequences, "sequences")?,
        };
        if batch.positions.len() != batch.token_ids.len() {
            return bad("it has not one position for each token".to_owned());
        }
        let mut end = 0;
        for (index, sequence) in batch.sequences.iter().enumerate() {
            if sequence.rows.start < end || sequence.rows.end < sequence.rows.start {
                return bad(format!("the rows of sequence {index} belong to another one"));
            }
            end = sequence.rows.end;
        }
        for (group, cells) in batch.kv.iter().map(|group| group.cells).enumerate() {
            self.cells.clear();
            self.cells.extend_from_slice(cells);
            self.cells.sort_unstable();
            if let Some(twice) = self.cells.windows(2).find(|pair| pair[0] == pair[1]) {
                return bad(format!("group {group}: two rows go to cell {}", twice[0]));
            }
        }
        Ok(extents)
    }
}

fn count(found: usize, planned: u32, what: &str) -> Result<u32, BackendError> {
    match u32::try_from(found) {
        Ok(found) if found <= planned => Ok(found),
        _ => bad(format!("it has {found} {what}, planned are at most {planned}")),
    }
}

fn bad<T>(reason: String) -> Result<T, BackendError> {
    Err(BackendError::BadBatch(reason))
}

#[cfg(test)]
mod tests {
    use minfer_graph::{KvGroupBatch, SequenceView};

    use super::*;

    const PLANNED: Extents = Extents { tokens: 3, rows: 2, sequences: 2 };

    fn check(tokens: usize, positions: usize, rows: &[(u32, u32)], cells: &[u32]) -> Result<Extents, String> {
        let zeros = [0; 8];
        let sequences: Vec<_> =
            rows.iter().map(|&(start, end)| SequenceView { rows: start..end, cached: 0 }).collect();
        let kv = [
            KvGroupBatch { cells: &[4, 2, 0], block_tables: &[] },
            KvGroupBatch { cells, block_tables: &[] },
        ];
        let batch = Batch {
            token_ids: &zeros[..tokens],
            positions: &zeros[..positions],
            sequences: &sequences,
            kv: &kv,
            output_rows: &[0],
        };
        BatchCheck::default().extents(&batch, PLANNED).map_err(|error| error.to_string())
    }

    #[test]
    fn rows_and_cells_that_two_workers_would_write_are_refused() {
        let fits = Ok(Extents { tokens: 3, rows: 1, sequences: 2 });
        assert_eq!(check(3, 3, &[(0, 1), (1, 3)], &[9, 1, 5]), fits);
        let reason = |result: Result<Extents, String>| result.unwrap_err();
        assert!(reason(check(3, 3, &[(0, 2), (1, 3)], &[9, 1, 5])).contains("rows of sequence 1"));
        assert!(
            reason(check(3, 3, &[(0, 1), (1, 3)], &[9, 1, 9])).contains("group 1: two rows go to cell 9")
        );
        assert!(reason(check(4, 4, &[], &[])).contains("4 tokens, planned are at most 3"));
        assert!(reason(check(3, 2, &[], &[])).contains("one position for each token"));
    }
}
