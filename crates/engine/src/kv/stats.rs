//! Counters and gauges of the store.

use super::store::{Group, SequenceId, Store};

/// Counts, summed over groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KvStats {
    /// Blocks that the budget allows.
    pub blocks_total: u64,
    /// Blocks that sequences own, each counted once.
    pub blocks_live: u64,
    /// Blocks without an owner that are kept for reuse.
    pub blocks_cached: u64,
    /// Blocks that more than one sequence owns, each counted once.
    pub blocks_shared: u64,
    /// Blocks attributed to sequences: each counted once for every sequence that owns it.
    pub blocks_attributed: u64,
    /// Bytes of the live blocks.
    pub live_bytes: u64,
    /// Bytes of the cached blocks.
    pub cached_bytes: u64,
    /// Bytes of the shared blocks, each counted once.
    pub shared_bytes: u64,
    /// Sequences.
    pub sequences: u64,
    /// Tokens in the cache, those of every sequence.
    pub tokens: u64,
    /// Blocks copied because others owned or knew the one that was to be written.
    pub blocks_copied: u64,
    /// Rows copied into them.
    pub rows_copied: u64,
    /// Blocks moved by compaction.
    pub blocks_moved: u64,
    /// Sequences that began with rows of others.
    pub hits: u64,
    /// Tokens that were not fed for that.
    pub tokens_reused: u64,
    /// Cached blocks evicted because memory was needed.
    pub evictions: u64,
}

/// What one sequence owns, summed over groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SequenceBlocks {
    /// Blocks that it owns.
    pub blocks: u64,
    /// Those of them that others own too.
    pub shared: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// What has happened since the store was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counters {
    pub(super) blocks_copied: u64,
    pub(super) rows_copied: u64,
    pub(super) blocks_moved: u64,
    pub(super) hits: u64,
    pub(super) tokens_reused: u64,
    pub(super) evictions: u64,
}

impl Store {
    /// Counts.
    pub fn stats(&self) -> KvStats {
        let sum = |count: &dyn Fn(&Group) -> u64| -> u64 { self.groups.iter().map(count).sum() };
        let live = |group: &Group| u64::from(group.pool.live());
        let cached = |group: &Group| u64::from(group.pool.cached());
        let shared = |group: &Group| u64::from(group.pool.shared());
        KvStats {
            blocks_total: sum(&|group| u64::from(group.pool.total())),
            blocks_live: sum(&live),
            blocks_cached: sum(&cached),
            blocks_shared: sum(&shared),
            blocks_attributed: sum(&|group| group.pool.references()),
            live_bytes: sum(&|group| live(group) * group.block_bytes),
            cached_bytes: sum(&|group| cached(group) * group.block_bytes),
            shared_bytes: sum(&|group| shared(group) * group.block_bytes),
            sequences: self.sequences.len() as u64,
            tokens: self.sequences.values().map(|sequence| u64::from(sequence.length)).sum(),
            blocks_copied: self.counters.blocks_copied,
            rows_copied: self.counters.rows_copied,
            blocks_moved: self.counters.blocks_moved,
            hits: self.counters.hits,
            tokens_reused: self.counters.tokens_reused,
            evictions: self.counters.evictions,
        }
    }

    /// What one sequence owns.
    pub fn sequence_blocks(&self, id: SequenceId) -> SequenceBlocks {
        let mut sum = SequenceBlocks::default();
        for (group, table) in self.groups.iter().zip(&self.sequence(id).tables) {
            for block in table.blocks() {
                sum.blocks += 1;
                sum.shared += u64::from(group.pool.owners(block) > 1);
                sum.bytes += group.block_bytes;
            }
        }
        sum
    }
}
