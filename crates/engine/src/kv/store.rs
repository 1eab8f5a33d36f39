//! The store: sequences, their blocks, and the operations that need no new blocks.

use std::collections::BTreeMap;

use minfer_graph::KvRun;
use minfer_graph::backend::KvArena;
use minfer_graph::{BlockTable, KvGroupSpec, KvSpec};

use super::blocks::{BlockOrder, BlockPool};
use super::demand::window_blocks;
use super::error::StoreError;
use super::prefix_index::{LastNodes, PrefixIndex};
use super::stats::Counters;
use super::table::Table;

/// Identifies a sequence of one store. Ids are not reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(u64);

impl SequenceId {
    /// The number in error messages.
    pub(super) fn number(self) -> u64 {
        self.0
    }
}

/// Settings of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreOptions {
    /// Most blocks of each group, where fewer than the arena reserves are wanted.
    pub most_blocks: Option<u32>,
    /// Bytes that the arena holds at most, as far as it is known beforehand.
    pub most_bytes: Option<u64>,
    /// The order in which free blocks are allocated.
    pub block_order: BlockOrder,
    /// Whether blocks without an owner stay cached for sequences with the same prefix.
    pub cache: bool,
    /// A fingerprint of everything that rows depend on besides tokens: weights, adapters, formats,
    /// the rope scaling of this context, the numerics class. Rows are reused only under the same
    /// fingerprint.
    pub fingerprint: u64,
    /// Most distinct rope offsets, besides 0, of a sequence's rows; `None`: any number. Attention's
    /// memory for them is planned with [`most_rope_offsets`](super::most_rope_offsets).
    pub most_rope_offsets: Option<u32>,
    /// Most tokens of a sequence in one step, if windows are evicted after each step. `None`: any
    /// number; window groups then count as holding every position.
    pub step_tokens: Option<u32>,
}

/// The blocks of every group and the sequences that own them.
///
/// A step first [`prepare`](Self::prepare)s cells for the tokens it will feed, then either
/// [`publish`](Self::publish)es or [`undo`](Self::undo)es them.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq))]
pub struct Store {
    pub(super) groups: Vec<Group>,
    pub(super) sequences: BTreeMap<SequenceId, KvSequence>,
    pub(super) next_id: u64,
    pub(super) counters: Counters,
    /// Bytes that the arena holds at most.
    pub(super) most_bytes: Option<u64>,
    pub(super) most_rope_offsets: u32,
    /// Whether the prefix index is used.
    pub(super) cache: bool,
    pub(super) index: PrefixIndex,
    /// Incremented whenever a block is released; orders the cached blocks.
    pub(super) clock: u64,
}

/// The blocks of one group.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq))]
pub(super) struct Group {
    pub(super) block_tokens: u32,
    pub(super) block_bytes: u64,
    pub(super) window: Option<u32>,
    /// Blocks that it holds of one sequence at most, where a window bounds them.
    pub(super) most_held: Option<u32>,
    pub(super) pool: BlockPool,
}

/// One sequence's tokens and where their rows lie.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct KvSequence {
    /// Tokens whose rows are in the cache, then tokens with prepared cells.
    pub(super) tokens: Vec<u32>,
    /// Tokens whose rows are in the cache.
    pub(super) length: u32,
    /// Tokens were removed from within, so its rows also depend on those.
    pub(super) shifted: bool,
    /// Only sequences of the same salt share its blocks.
    pub(super) salt: Option<u64>,
    /// One for each group.
    pub(super) tables: Vec<Table>,
    /// The nodes of its last full blocks in the prefix index.
    pub(super) last_nodes: LastNodes,
}

impl Store {
    /// An empty store over `spec`'s groups.
    pub fn new(spec: &KvSpec, options: StoreOptions) -> Store {
        Store::with_hash_mask(spec, options, u64::MAX)
    }

    pub(super) fn with_hash_mask(spec: &KvSpec, options: StoreOptions, hash_mask: u64) -> Store {
        let group = |(group, &blocks): (&KvGroupSpec, &u32)| Group {
            block_tokens: group.block_tokens,
            block_bytes: group.bytes_per_block(),
            window: group.window,
            most_held: group
                .window
                .zip(options.step_tokens)
                .map(|(window, step_tokens)| window_blocks(window, step_tokens, group.block_tokens)),
            pool: BlockPool::new(
                options.most_blocks.map_or(blocks, |most| most.min(blocks)),
                options.block_order,
            ),
        };
        let sizes = spec.groups.iter().map(|group| group.block_tokens);
        Store {
            groups: spec.groups.iter().zip(&spec.max_blocks).map(group).collect(),
            sequences: BTreeMap::new(),
            next_id: 0,
            counters: Counters::default(),
            most_bytes: options.most_bytes,
            most_rope_offsets: options.most_rope_offsets.unwrap_or(u32::MAX),
            cache: options.cache,
            index: PrefixIndex::new(sizes, options.fingerprint, hash_mask),
            clock: 0,
        }
    }

    /// A new sequence without tokens.
    pub fn create(&mut self) -> SequenceId {
        let tables = self.groups.iter().map(|group| Table::new(group.block_tokens)).collect();
        let (tokens, last_nodes) = (Vec::new(), self.index.no_last_nodes());
        self.insert(KvSequence { tokens, length: 0, shifted: false, salt: None, tables, last_nodes })
    }

    pub(super) fn insert(&mut self, sequence: KvSequence) -> SequenceId {
        let id = SequenceId(self.next_id);
        self.next_id += 1;
        self.sequences.insert(id, sequence);
        id
    }

    /// Marks the prepared tokens' rows as stored, and enters blocks that are now full into the
    /// prefix index.
    pub fn publish(&mut self, id: SequenceId) {
        let sequence = self.sequence_mut(id);
        let before = std::mem::replace(&mut sequence.length, sequence.tokens.len() as u32);
        self.index_full_blocks(id, before);
    }

    /// Releases the prepared cells.
    pub fn undo(&mut self, arena: &mut dyn KvArena, id: SequenceId) {
        let length = self.sequence(id).length;
        self.cut(arena, id, length);
    }

    /// Releases the prepared cells from position `length` on.
    ///
    /// # Panics
    /// Tokens before it are not prepared.
    pub fn undo_from(&mut self, arena: &mut dyn KvArena, id: SequenceId, length: u32) {
        let sequence = self.sequence_mut(id);
        assert!((sequence.length..=sequence.tokens.len() as u32).contains(&length), "{length} is prepared");
        sequence.tokens.truncate(length as usize);
        for group in 0..self.groups.len() {
            let given_up = self.sequence_mut(id).tables[group].cut(length);
            self.release_blocks(arena, group, given_up);
        }
    }

    /// Drops every token from index `length` on.
    ///
    /// # Errors
    /// There are fewer tokens, or the next one would see rows that a window has released.
    ///
    /// # Panics
    /// The sequence does not exist or has cells that are not published.
    pub fn truncate(
        &mut self,
        arena: &mut dyn KvArena,
        id: SequenceId,
        length: u32,
    ) -> Result<(), StoreError> {
        let sequence = self.published(id);
        if length > sequence.length {
            return Err(StoreError::TooShort { sequence: id.0, length: sequence.length, wanted: length });
        }
        self.check_sight(id, length, &sequence.tables)?;
        self.cut(arena, id, length);
        Ok(())
    }

    /// Drops a sequence and its prepared cells. Its published blocks stay cached until memory is
    /// needed.
    ///
    /// # Panics
    /// The sequence does not exist.
    pub fn drop_sequence(&mut self, arena: &mut dyn KvArena, id: SequenceId) {
        self.undo(arena, id);
        self.index_partial_blocks(arena, id);
        self.cut(arena, id, 0);
        self.sequences.remove(&id);
    }

    /// A new sequence with the same tokens that shares all blocks. Later changes of one do not
    /// affect the other.
    ///
    /// # Panics
    /// The sequence does not exist or has cells that are not published.
    pub fn fork(&mut self, id: SequenceId) -> SequenceId {
        let sequence = self.published(id).clone();
        for (group, table) in self.groups.iter_mut().zip(&sequence.tables) {
            table.blocks().into_iter().for_each(|block| group.pool.share(block));
        }
        self.index.hold(&sequence.last_nodes);
        self.insert(sequence)
    }

    /// Tokens whose rows are in the cache.
    pub fn tokens(&self, id: SequenceId) -> &[u32] {
        let sequence = self.sequence(id);
        &sequence.tokens[..sequence.length as usize]
    }

    /// Every sequence.
    pub fn ids(&self) -> Vec<SequenceId> {
        self.sequences.keys().copied().collect()
    }

    /// How many tokens' rows are in the cache.
    pub fn length(&self, id: SequenceId) -> u32 {
        self.sequence(id).length
    }

    /// Tokens whose cells are taken but not yet published.
    pub fn prepared(&self, id: SequenceId) -> u32 {
        let sequence = self.sequence(id);
        sequence.tokens.len() as u32 - sequence.length
    }

    /// Only sequences of the same salt share its blocks.
    pub fn salt(&self, id: SequenceId) -> Option<u64> {
        self.sequence(id).salt
    }

    /// Whether tokens were removed from within, so that rows also depend on the removed ones.
    pub fn is_shifted(&self, id: SequenceId) -> bool {
        self.sequence(id).shifted
    }

    /// A sequence's blocks in order.
    pub fn table(&self, group: usize, id: SequenceId) -> BlockTable<'_> {
        self.sequence(id).tables[group].view()
    }

    /// The cells of the prepared positions, in order.
    pub fn cells(&self, group: usize, id: SequenceId) -> impl Iterator<Item = u32> + '_ {
        let sequence = self.sequence(id);
        let table = &sequence.tables[group];
        (sequence.length..sequence.tokens.len() as u32).map(move |position| table.cell(position))
    }

    /// Where a sequence's rows lie: every position once and in order, the prepared ones too. Rows
    /// that a window has released are runs of block [`EVICTED`](minfer_graph::EVICTED).
    pub fn rows(&self, group: usize, id: SequenceId) -> Vec<KvRun> {
        let sequence = self.sequence(id);
        sequence.tables[group].runs(sequence.tokens.len() as u32)
    }

    /// Whether new sequences can reuse cached prefixes.
    pub fn keeps_prefixes(&self) -> bool {
        self.cache
    }

    /// Number of groups.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Drops the tokens from `length` on, the prepared ones too.
    pub(super) fn cut(&mut self, arena: &mut dyn KvArena, id: SequenceId, length: u32) {
        let sequence = self.sequences.get_mut(&id).expect("the sequence exists");
        self.index.cut(&mut sequence.last_nodes, sequence.length, length);
        sequence.tokens.truncate(length as usize);
        sequence.length = length;
        sequence.shifted &= length > 0;
        for group in 0..self.groups.len() {
            let given_up = self.sequence_mut(id).tables[group].cut(length);
            self.release_blocks(arena, group, given_up);
        }
    }

    /// One owner less for these blocks.
    pub(super) fn release_blocks(&mut self, arena: &mut dyn KvArena, group: usize, blocks: Vec<u32>) {
        for block in blocks {
            self.clock += 1;
            if self.groups[group].pool.give(block, self.clock) {
                arena.release(group, block);
            }
        }
    }

    pub(super) fn sequence(&self, id: SequenceId) -> &KvSequence {
        self.sequences.get(&id).expect("the sequence exists")
    }

    pub(super) fn sequence_mut(&mut self, id: SequenceId) -> &mut KvSequence {
        self.sequences.get_mut(&id).expect("the sequence exists")
    }

    /// A sequence without prepared cells.
    pub(super) fn published(&self, id: SequenceId) -> &KvSequence {
        let sequence = self.sequence(id);
        let published = sequence.length as usize == sequence.tokens.len();
        assert!(published, "KV sequence {} has cells that are not published", id.0);
        sequence
    }

    pub(super) fn published_mut(&mut self, id: SequenceId) -> &mut KvSequence {
        self.published(id);
        self.sequence_mut(id)
    }
}
