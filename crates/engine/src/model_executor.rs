//! The engine's view of a loaded model: a body and a head graph that run on a batch, and the KV
//! arena.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use minfer_graph::backend::KvArena;
use minfer_graph::{Batch, Executor, Extents, KvSpec};

/// A loaded model that runs batches. [`Executor`] of `minfer-graph` is one; tests bring others.
pub trait ModelExecutor: Send {
    /// The most tokens, head rows and sequences of one run.
    fn extents(&self) -> Extents;

    /// Number of logits in a row.
    fn vocab(&self) -> usize;

    /// Token ids that can be fed are below it.
    fn input_vocab(&self) -> usize;

    /// The geometry of the KV cache.
    fn kv_spec(&self) -> &KvSpec;

    /// Runs the layers on the batch's tokens: stores their K and V rows and keeps their hidden
    /// states for the head.
    ///
    /// # Errors
    /// The backend failed; the batch's cells hold no usable rows then.
    fn run_body(&mut self, batch: &Batch<'_>) -> Result<(), ModelExecutorError>;

    /// Computes logits of the batch's output rows from the hidden states of the last
    /// [`run_body`](Self::run_body).
    ///
    /// # Errors
    /// The backend failed.
    fn run_head(&mut self, batch: &Batch<'_>) -> Result<(), ModelExecutorError>;

    /// Logits of the last head run's output row `row`, counted from 0.
    ///
    /// # Errors
    /// There is no such row, or the device failed.
    fn logits(&self, row: usize) -> Result<Cow<'_, [f32]>, ModelExecutorError>;

    /// Calls `job` once for each index below `count` and returns when all calls have. An executor
    /// with threads makes the calls on them, in any order.
    ///
    /// # Panics
    /// `job` panics.
    fn run_jobs(&self, count: usize, job: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(job);
    }

    /// The memory of the KV cache.
    fn arena(&mut self) -> &mut dyn KvArena;

    /// Counters and sizes.
    fn stats(&self) -> ModelExecutorStats;
}

/// Counters and sizes of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelExecutorStats {
    /// Graphs built since the model was loaded.
    pub graph_builds: u64,
    /// Graph rewrites that were applied.
    pub rewrites: u64,
    /// Bytes of the weights as the backend keeps them.
    pub weight_bytes: u64,
    /// Bytes of workspace.
    pub workspace_bytes: u64,
}

/// Why a run failed. Cheap to clone: every sequence of the step gets it.
#[derive(Debug, Clone)]
pub struct ModelExecutorError(Arc<dyn Error + Send + Sync>);

impl ModelExecutorError {
    /// Wraps a cause.
    pub fn new(cause: impl Into<Box<dyn Error + Send + Sync>>) -> ModelExecutorError {
        ModelExecutorError(cause.into().into())
    }
}

impl fmt::Display for ModelExecutorError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl Error for ModelExecutorError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

impl PartialEq for ModelExecutorError {
    fn eq(&self, other: &ModelExecutorError) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.to_string() == other.0.to_string()
    }
}

impl ModelExecutor for Executor {
    fn extents(&self) -> Extents {
        Executor::extents(self)
    }

    fn vocab(&self) -> usize {
        self.vocabulary() as usize
    }

    fn input_vocab(&self) -> usize {
        self.model_graph().input_vocabulary() as usize
    }

    fn kv_spec(&self) -> &KvSpec {
        Executor::kv_spec(self)
    }

    fn run_body(&mut self, batch: &Batch<'_>) -> Result<(), ModelExecutorError> {
        Executor::run_body(self, batch).map_err(ModelExecutorError::new)
    }

    fn run_head(&mut self, batch: &Batch<'_>) -> Result<(), ModelExecutorError> {
        Executor::run_head(self, batch).map_err(ModelExecutorError::new)
    }

    fn logits(&self, row: usize) -> Result<Cow<'_, [f32]>, ModelExecutorError> {
        Executor::logits(self, row).map_err(ModelExecutorError::new)
    }

    fn run_jobs(&self, count: usize, job: &(dyn Fn(usize) + Sync)) {
        self.backend().run_jobs(count, job);
    }

    fn arena(&mut self) -> &mut dyn KvArena {
        Executor::arena(self)
    }

    fn stats(&self) -> ModelExecutorStats {
        let stats = Executor::stats(self);
        ModelExecutorStats {
            graph_builds: stats.graph_builds,
            rewrites: stats.rewrites.applied.iter().map(|&(_, count)| count as u64).sum(),
            weight_bytes: stats.weight_bytes,
            workspace_bytes: stats.workspace_bytes,
        }
    }
}
