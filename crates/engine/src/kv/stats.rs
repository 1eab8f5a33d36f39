//! Counts of the store, and how much room there is.

use super::restore::{Shape, lacking};
use super::store::{Group, SequenceId, Store};

/// Counts, summed over groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KvStats {
    /// Blocks that the budget allows.
    pub blocks_total: u64,
    /// Blocks that sequences own, each counted once.
    pub blocks_live: u64,
    /// Blocks that no sequence owns and that are kept for those that begin alike.
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
    /// Cached blocks given up because memory was wanted.
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

    /// Whether a new sequence of these tokens and salt fits beside `reserved` sequences that grow to their token counts. Cached
    /// blocks count as free, blocks that it would share with running ones as taken already.
    pub fn has_room(&self, reserved: &[(SequenceId, u32)], tokens: &[u32], salt: Option<u64>) -> bool {
        let groups = self.groups.iter().zip(self.spared_blocks(tokens, salt));
        let own = groups.map(|(group, spared)| (tokens.len() as u32).div_ceil(group.block_tokens) - spared);
        self.holds(reserved, own)
    }

    /// As [`has_room`](Self::has_room) for a sequence that is to be restored.
    pub fn has_room_for(&self, reserved: &[(SequenceId, u32)], shape: &Shape) -> bool {
        let groups = self.groups.iter().zip(&shape.groups);
        self.holds(reserved, groups.map(|(group, runs)| lacking(runs, group.block_tokens, shape)))
    }

    /// Whether every group has `own` blocks beside what reserved sequences grow by, and the arena may hold all of it.
    fn holds(&self, reserved: &[(SequenceId, u32)], own: impl Iterator<Item = u32>) -> bool {
        let mut bytes = 0u64;
        let blocks_suffice = self.groups.iter().enumerate().zip(own).all(|((index, group), own)| {
            let grown: u32 = reserved.iter().map(|&(id, tokens)| self.growth(index, id, tokens)).sum();
            let wanted = grown.saturating_add(own);
            bytes += (u64::from(group.pool.live()) + u64::from(wanted)) * group.block_bytes;
            wanted <= group.pool.available()
        });
        blocks_suffice && self.most_bytes.is_none_or(|most| bytes <= most)
    }

    /// Blocks that a sequence takes to grow to a token count.
    fn growth(&self, group: usize, id: SequenceId, tokens: u32) -> u32 {
        let sequence = self.sequence(id);
        let held = sequence.tokens.len() as u32;
        let more = tokens.saturating_sub(held);
        let table = &sequence.tables[group];
        let tail = table.tail(held).filter(|_| more > 0 && held == sequence.length);
        let copied = tail.is_some_and(|(block, _)| self.groups[group].pool.owners(block) > 1);
        table.lacks(held, more) + u32::from(copied)
    }
}
