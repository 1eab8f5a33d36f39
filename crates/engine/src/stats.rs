//! What the engine counts.

use crate::ModelExecutorStats;
use crate::kv::KvStats;

/// Counters and gauges of one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineStats {
    /// Requests that wait for a slot or for memory.
    pub waiting: u64,
    /// Requests that run.
    pub running: u64,
    /// Requests that came to their end.
    pub finished: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests that were cancelled or whose client went away.
    pub cancelled: u64,
    /// Sequences that gave their memory to older ones and are fed again.
    pub preemptions: u64,
    /// Sequences and conversations whose rows were copied to the host's memory, because they cannot be computed again.
    pub swaps: u64,
    /// Runs of the body graph.
    pub steps: u64,
    /// Tokens fed, those fed again after a preemption included.
    pub tokens_fed: u64,
    /// Runs of the head.
    pub head_runs: u64,
    /// Rows that the head computed logits for.
    pub head_rows: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Prompt tokens whose rows were found in the cache.
    pub reused_tokens: u64,
    /// Times that a sequence forgot tokens because its context was full.
    pub shifts: u64,
    /// Tokens forgotten so.
    pub shifted_tokens: u64,
    /// Times that blocks were moved down because requests that ended had left the rest spread.
    pub compactions: u64,
    /// Bytes of granules that those moves freed.
    pub compacted_bytes: u64,
    /// Counters and sizes of the model.
    pub model: ModelExecutorStats,
    /// The worker ended because steps went by without progress.
    pub stalled: bool,
    /// Blocks of the KV store.
    pub kv: KvStats,
    /// Bytes of the granules in which KV blocks in use or kept for reuse lie.
    pub kv_committed_bytes: u64,
    /// Bytes of granules that stay in memory for the next KV blocks.
    pub kv_warm_bytes: u64,
    /// Bytes that both together may take; absent: no bound but the system's.
    pub kv_limit_bytes: Option<u64>,
    /// Bytes of KV address space reserved.
    pub kv_reserved_bytes: u64,
}
