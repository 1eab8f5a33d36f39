//! Counters and gauges of an engine.

use crate::ModelExecutorStats;
use crate::kv::KvStats;

/// Counters and gauges of one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineStats {
    /// Requests that wait for a slot or for memory.
    pub waiting: u64,
    /// Requests that run.
    pub running: u64,
    /// Requests that finished.
    pub finished: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests that were cancelled or whose client is gone.
    pub cancelled: u64,
    /// Sequences that were preempted: older ones took their KV blocks.
    pub preemptions: u64,
    /// Sequences and conversations that were swapped out: their KV rows were copied to host memory.
    pub swaps: u64,
    /// Runs of the body graph.
    pub steps: u64,
    /// Tokens fed to the model, with those fed again after a preemption.
    pub tokens_fed: u64,
    /// Runs of the head.
    pub head_runs: u64,
    /// Rows that the head computed logits for.
    pub head_rows: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Tokens that were guessed.
    pub guessed_tokens: u64,
    /// Guessed tokens that were right: they are generated tokens too.
    pub right_guesses: u64,
    /// Prompt tokens that the prefix cache or a conversation already had: they were not fed.
    pub reused_tokens: u64,
    /// Context shifts.
    pub shifts: u64,
    /// Tokens that context shifts removed.
    pub shifted_tokens: u64,
    /// Compactions: times that KV blocks were moved down to give memory back.
    pub compactions: u64,
    /// Bytes that compactions gave back.
    pub compacted_bytes: u64,
    /// Counters and sizes of the model.
    pub model: ModelExecutorStats,
    /// The worker ended because steps went by without progress.
    pub stalled: bool,
    /// Blocks of the KV store.
    pub kv: KvStats,
    /// Bytes of memory under KV blocks in use and cached blocks.
    pub kv_committed_bytes: u64,
    /// Bytes of memory that are kept for the next KV blocks.
    pub kv_warm_bytes: u64,
    /// Bytes that both together may take; absent: no bound but the system's.
    pub kv_limit_bytes: Option<u64>,
    /// Bytes of KV address space reserved.
    pub kv_reserved_bytes: u64,
}

impl EngineStats {
    /// Requests that have ended.
    pub(crate) fn ended(&self) -> u64 {
        self.finished + self.failed + self.cancelled
    }
}
