//! The batch of one step: its tokens, positions, KV cells and block tables, and running the model
//! on them.

use minfer_graph::{Batch, BlockTable, KvGroupBatch, SequenceView};

use crate::kv::{SequenceId, Store};
use crate::{ModelExecutor, ModelExecutorError};

/// What one step gives the model. The store has prepared cells for exactly the pushed tokens.
#[derive(Debug, Default)]
pub(crate) struct StepBatch {
    token_ids: Vec<u32>,
    positions: Vec<u32>,
    views: Vec<SequenceView>,
    sequences: Vec<SequenceId>,
    /// Cells of every row, one list per group.
    cells: Vec<Vec<u32>>,
}

impl StepBatch {
    /// Starts a new step.
    pub(crate) fn clear(&mut self, groups: usize) {
        self.token_ids.clear();
        self.positions.clear();
        self.views.clear();
        self.sequences.clear();
        self.cells.resize(groups, Vec::new());
        self.cells.iter_mut().for_each(Vec::clear);
    }

    /// Adds a sequence's next tokens; returns the batch row of the first.
    pub(crate) fn push(&mut self, store: &Store, sequence: SequenceId, tokens: &[u32]) -> u32 {
        let first = self.rows();
        let cached = store.length(sequence);
        assert_eq!(store.prepared(sequence) as usize, tokens.len(), "cells are prepared for each token");
        self.token_ids.extend_from_slice(tokens);
        self.positions.extend(cached..cached + tokens.len() as u32);
        self.views.push(SequenceView { rows: first..self.rows(), cached });
        self.sequences.push(sequence);
        for (group, cells) in self.cells.iter_mut().enumerate() {
            cells.extend(store.cells(group, sequence));
        }
        first
    }

    /// Rows so far.
    pub(crate) fn rows(&self) -> u32 {
        self.token_ids.len() as u32
    }

    /// Runs the model's layers on the batch; stores its KV rows.
    pub(crate) fn run_body(
        &self,
        model: &mut dyn ModelExecutor,
        store: &Store,
    ) -> Result<(), ModelExecutorError> {
        self.with_batch(store, &[], |batch| model.run_body(batch))
    }

    /// Computes the logits of `rows` of the batch: at most as many as the head takes in one run.
    pub(crate) fn run_head(
        &self,
        model: &mut dyn ModelExecutor,
        store: &Store,
        rows: &[u32],
    ) -> Result<(), ModelExecutorError> {
        self.with_batch(store, rows, |batch| model.run_head(batch))
    }

    fn with_batch<R>(&self, store: &Store, rows: &[u32], run: impl FnOnce(&Batch<'_>) -> R) -> R {
        let tables: Vec<Vec<BlockTable<'_>>> = (0..self.cells.len())
            .map(|group| self.sequences.iter().map(|&id| store.table(group, id)).collect())
            .collect();
        let groups = self.cells.iter().zip(&tables);
        let kv: Vec<KvGroupBatch<'_>> =
            groups.map(|(cells, block_tables)| KvGroupBatch { cells, block_tables }).collect();
        run(&Batch {
            token_ids: &self.token_ids,
            positions: &self.positions,
            sequences: &self.views,
            kv: &kv,
            output_rows: rows,
        })
    }
}
