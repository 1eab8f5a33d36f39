//! Running a model without an engine: the caller chooses every batch, for measurements and tests.

mod rows;

use std::borrow::Cow;

use minfer_graph::{BackendError, Extents, KvSpec};

use crate::kv::{BlockOrder, SequenceId, Store, StoreError, StoreOptions};
use crate::step_batch::StepBatch;
use crate::{ModelExecutor, ModelExecutorError};

/// A model with a KV store: no queue, no sampling, no thread.
///
/// [`prefill`](Self::prefill) and [`decode`](Self::decode) are for measurements,
/// [`feed`](Self::feed) takes any batch.
pub struct Runner {
    model: Box<dyn ModelExecutor>,
    store: Store,
    batch: StepBatch,
    counts: RunnerStats,
}

/// Settings of a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunnerOptions {
    /// Most KV blocks of each group of layers, if fewer than the arena reserves.
    pub kv_blocks: Option<u32>,
    /// The order in which KV blocks are handed out.
    pub block_order: BlockOrder,
    /// Whether blocks of closed sequences are kept for sequences that begin alike.
    pub prefix_cache: bool,
}

/// Which logits a step computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// None: the head does not run.
    Nothing,
    /// Those after each sequence's last token.
    Last,
    /// Those after every token.
    All,
}

/// Logits after one token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Row<'a> {
    /// Index in the step's list of sequences.
    pub sequence: usize,
    /// The token's index in its sequence.
    pub position: u32,
    /// One for each token of the vocabulary.
    pub logits: &'a [f32],
}

/// Counters of a runner. Tests read them to prove that a variant ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunnerStats {
    /// Runs of the body graph.
    pub steps: u64,
    /// Tokens fed.
    pub tokens_fed: u64,
    /// Runs of the head.
    pub head_runs: u64,
    /// Rows that the head computed logits for.
    pub head_rows: u64,
    /// Graphs built since the model was loaded.
    pub graph_builds: u64,
    /// Tokens whose KV rows came from a file.
    pub tokens_restored: u64,
}

/// Why a step could not run. The sequences are as they were before.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// No free KV blocks, or the arena refused memory.
    #[error(transparent)]
    Kv(#[from] StoreError),
    /// The model failed.
    #[error(transparent)]
    ModelExecutor(#[from] ModelExecutorError),
    /// More tokens or sequences than the model takes in one step.
    #[error("{what}: {value} in one step, but the model was compiled for {most}")]
    TooLarge {
        /// Tokens or sequences.
        what: &'static str,
        /// How many were given.
        value: usize,
        /// How many are possible.
        most: usize,
    },
    /// A sequence without tokens.
    #[error("sequence {0} of the step has no tokens")]
    NoTokens(usize),
    /// A sequence is given twice in one step.
    #[error("sequence {0} of the step is given twice")]
    Repeated(usize),
    /// A token id that the model does not have.
    #[error("token {id} is outside the vocabulary of {vocab} tokens")]
    TokenOutOfRange {
        /// The id.
        id: u32,
        /// Tokens that the model has.
        vocab: usize,
    },
}

impl RunnerOptions {
    fn store(self) -> StoreOptions {
        let RunnerOptions { kv_blocks, block_order, prefix_cache } = self;
        StoreOptions { most_blocks: kv_blocks, block_order, cache: prefix_cache, ..StoreOptions::default() }
    }
}

impl Runner {
    /// A runner with an empty cache.
    pub fn new(model: impl ModelExecutor + 'static, options: RunnerOptions) -> Runner {
        let store = Store::new(model.kv_spec(), options.store());
        Runner { model: Box::new(model), store, batch: StepBatch::default(), counts: RunnerStats::default() }
    }

    /// A new sequence without tokens.
    pub fn open(&mut self) -> SequenceId {
        self.store.create()
    }

    /// Forgets a sequence.
    ///
    /// # Panics
    /// The sequence was closed before.
    pub fn close(&mut self, sequence: SequenceId) {
        self.store.drop_sequence(self.model.arena(), sequence);
    }

    /// Tokens of a sequence that are in the cache.
    pub fn length(&self, sequence: SequenceId) -> u32 {
        self.store.length(sequence)
    }

    /// Forgets every token from index `length` on.
    ///
    /// # Errors
    /// There are fewer tokens.
    pub fn truncate(&mut self, sequence: SequenceId, length: u32) -> Result<(), RunError> {
        Ok(self.store.truncate(self.model.arena(), sequence, length)?)
    }

    /// Feeds tokens of several sequences in one step and calls `read` with the wanted logits, in
    /// the order of the batch.
    ///
    /// # Errors
    /// There is no room, or the model failed. No sequence has grown then.
    pub fn feed(
        &mut self,
        step: &[(SequenceId, &[u32])],
        want: Want,
        read: impl FnMut(Row<'_>),
    ) -> Result<(), RunError> {
        self.check(step)?;
        self.prepare(step)?;
        match self.run(step, want, read) {
            Ok(()) => {
                step.iter().for_each(|&(sequence, _)| self.store.publish(sequence));
                Ok(())
            }
            Err(error) => {
                self.undo(step);
                Err(error.into())
            }
        }
    }

    /// Feeds a prompt in pieces of the model's step size; gives the logits after its last token, as
    /// a generation needs.
    ///
    /// # Errors
    /// There is no room, or the model failed; pieces before that one stay fed.
    pub fn prefill(&mut self, sequence: SequenceId, tokens: &[u32]) -> Result<Cow<'_, [f32]>, RunError> {
        let pieces = tokens.chunks(self.model.extents().tokens as usize);
        let last = pieces.len().checked_sub(1).ok_or(RunError::NoTokens(0))?;
        for (index, piece) in pieces.enumerate() {
            let want = if index == last { Want::Last } else { Want::Nothing };
            self.feed(&[(sequence, piece)], want, |_| {})?;
        }
        Ok(self.model.logits(0)?)
    }

    /// Feeds one token; gives the logits after it.
    ///
    /// # Errors
    /// There is no room, or the model failed.
    pub fn decode(&mut self, sequence: SequenceId, token: u32) -> Result<Cow<'_, [f32]>, RunError> {
        self.feed(&[(sequence, &[token])], Want::Last, |_| {})?;
        Ok(self.model.logits(0)?)
    }

    /// Counts.
    pub fn stats(&self) -> RunnerStats {
        RunnerStats { graph_builds: self.model.stats().graph_builds, ..self.counts }
    }

    /// The most tokens, head rows and sequences of one step.
    pub fn extents(&self) -> Extents {
        self.model.extents()
    }

    /// Number of logits in a row.
    pub fn vocab(&self) -> usize {
        self.model.vocab()
    }

    /// The geometry of the KV cache.
    pub fn kv_spec(&self) -> &KvSpec {
        self.model.kv_spec()
    }

    /// The store, for its counts and block tables.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The model back.
    pub fn into_model(self) -> Box<dyn ModelExecutor> {
        self.model
    }

    fn check(&self, step: &[(SequenceId, &[u32])]) -> Result<(), RunError> {
        let extents = self.model.extents();
        let tokens = step.iter().map(|(_, tokens)| tokens.len()).sum();
        for (what, value, most) in [
            ("tokens", tokens, extents.tokens as usize),
            ("sequences", step.len(), extents.sequences as usize),
        ] {
            if value > most {
                return Err(RunError::TooLarge { what, value, most });
            }
        }
        let vocab = self.model.input_vocab();
        for (index, &(sequence, tokens)) in step.iter().enumerate() {
            if tokens.is_empty() {
                return Err(RunError::NoTokens(index));
            }
            if step[..index].iter().any(|&(other, _)| other == sequence) {
                return Err(RunError::Repeated(index));
            }
            if let Some(&id) = tokens.iter().find(|&&id| id as usize >= vocab) {
                return Err(RunError::TokenOutOfRange { id, vocab });
            }
        }
        Ok(())
    }

    /// Takes cells for every sequence or for none. Where there are too few, windows first give back what no later token sees.
    fn prepare(&mut self, step: &[(SequenceId, &[u32])]) -> Result<(), StoreError> {
        match self.try_prepare(step) {
            Err(
                StoreError::NoBlocks { .. }
                | StoreError::Refused { source: BackendError::OverKvLimit { .. }, .. },
            ) => {
                for id in self.store.ids() {
                    self.evict_window(id);
                }
                self.try_prepare(step)
            }
            prepared => prepared,
        }
    }

    fn try_prepare(&mut self, step: &[(SequenceId, &[u32])]) -> Result<(), StoreError> {
        for (index, &(sequence, tokens)) in step.iter().enumerate() {
            let prepared = self.store.prepare(self.model.arena(), sequence, tokens);
            if let Err(error) = prepared {
                self.undo(&step[..index]);
                return Err(error);
            }
        }
        Ok(())
    }

    fn undo(&mut self, step: &[(SequenceId, &[u32])]) {
        for &(sequence, _) in step {
            self.store.undo(self.model.arena(), sequence);
        }
    }

    fn run(
        &mut self,
        step: &[(SequenceId, &[u32])],
        want: Want,
        mut read: impl FnMut(Row<'_>),
    ) -> Result<(), ModelExecutorError> {
        self.batch.clear(self.store.groups());
        let mut wanted: Vec<(u32, usize, u32)> = Vec::new();
        for (index, &(sequence, tokens)) in step.iter().enumerate() {
            let first = self.batch.push(&self.store, sequence, tokens);
            let cached = self.store.length(sequence);
            let skipped = match want {
                Want::Nothing => tokens.len(),
                Want::Last => tokens.len() - 1,
                Want::All => 0,
            } as u32;
            wanted.extend((skipped..tokens.len() as u32).map(|at| (first + at, index, cached + at)));
        }
        self.batch.run_body(&mut *self.model, &self.store)?;
        self.counts.steps += 1;
        self.counts.tokens_fed += u64::from(self.batch.rows());
        for chunk in wanted.chunks(self.model.extents().rows as usize) {
            let rows: Vec<u32> = chunk.iter().map(|&(row, _, _)| row).collect();
            self.batch.run_head(&mut *self.model, &self.store, &rows)?;
            self.counts.head_runs += 1;
            self.counts.head_rows += rows.len() as u64;
            for (row, &(_, sequence, position)) in chunk.iter().enumerate() {
                read(Row { sequence, position, logits: &self.model.logits(row)? });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
