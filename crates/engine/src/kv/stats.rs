//! Counts of the store, and how much room there is.

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

    /// How many of new sequences with these tokens and salts fit beside `reserved` sequences that grow to their token counts: the
    /// longest prefix of `wanted`. Cached blocks count as free, blocks that a new sequence would share with running ones as
    /// taken already.
    pub fn fitting<'a>(
        &self,
        reserved: &[(SequenceId, u32)],
        wanted: impl Iterator<Item = (&'a [u32], Option<u64>)>,
    ) -> usize {
        let mut room: Vec<i64> = self.groups.iter().map(|group| i64::from(group.pool.available())).collect();
        for &(id, tokens) in reserved {
            for (group, room) in room.iter_mut().enumerate() {
                *room -= i64::from(self.growth(group, id, tokens));
            }
        }
        let mut fits = |(tokens, salt): (&[u32], Option<u64>)| {
            let spared = self.spared_blocks(tokens, salt);
            self.groups.iter().zip(&mut room).zip(spared).all(|((group, room), spared)| {
                let blocks = (tokens.len() as u32).div_ceil(group.block_tokens);
                *room -= i64::from(blocks - spared);
                *room >= 0
            })
        };
        wanted.take_while(|&wanted| fits(wanted)).count()
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
