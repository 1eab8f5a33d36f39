//! Sequences, the groups of blocks that they own, and the operations that need no memory.

use std::collections::BTreeMap;

use minfer_graph::KvRun;
use minfer_graph::backend::KvArena;
use minfer_graph::{BlockTable, KvGroupSpec, KvSpec};

use super::blocks::{BlockPool, Placement};
use super::demand::window_blocks;
use super::error::StoreError;
use super::naming::{Index, Tips};
use super::stats::Counters;
use super::table::Table;

/// Names a sequence of one store; never used again after the sequence is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(u64);

impl SequenceId {
    /// As errors say it.
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
    /// In which order free blocks are handed out.
    pub placement: Placement,
    /// Whether blocks that no sequence owns any more are kept for sequences that begin alike.
    pub cache: bool,
    /// Stands for everything besides tokens that rows depend on: weights, adapters, formats, the rope scaling chosen for this
    /// context, the class of arithmetic. Rows of another fingerprint are never reused.
    pub fingerprint: u64,
    /// Most distinct rope offsets beside 0 that the rows of a sequence may have; absent: any number. What attention keeps for
    /// each of them was reckoned with beforehand, as [`most_rope_offsets`](super::most_rope_offsets) says.
    pub most_rope_offsets: Option<u32>,
    /// Most tokens of a sequence that one step feeds, where windows are evicted between two steps; absent: any number, and groups
    /// with windows are taken to hold every position.
    pub step_tokens: Option<u32>,
}

/// Positional blocks of every group, and who owns them.
///
/// A step first [`prepare`](Self::prepare)s cells for the tokens it will feed, then either
/// [`publish`](Self::publish)es or [`undo`](Self::undo)es them.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq))]
pub struct Store {
    pub(super) groups: Vec<Group>,
    pub(super) sequences: BTreeMap<SequenceId, Sequence>,
    pub(super) next_id: u64,
    pub(super) counters: Counters,
    /// Bytes that the arena holds at most.
    pub(super) most_bytes: Option<u64>,
    pub(super) most_rope_offsets: u32,
    /// Whether blocks are named and kept.
    pub(super) cache: bool,
    pub(super) index: Index,
    /// Counts up whenever a block is given back.
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
pub(super) struct Sequence {
    /// Those whose rows are in the cache, then those whose cells are taken but not yet published.
    pub(super) tokens: Vec<u32>,
    /// Tokens whose rows are in the cache.
    pub(super) length: u32,
    /// Its rows are not those that its tokens alone would give.
    pub(super) shifted: bool,
    /// Keeps its blocks from sequences of another salt.
    pub(super) salt: Option<u64>,
    /// One for each group.
    pub(super) tables: Vec<Table>,
    /// Its last full blocks in the index.
    pub(super) tips: Tips,
}

impl Store {
    /// An empty store over `spec`'s groups.
    pub fn new(spec: &KvSpec, options: StoreOptions) -> Store {
        Store::with_names(spec, options, u64::MAX)
    }

    pub(super) fn with_names(spec: &KvSpec, options: StoreOptions, name_mask: u64) -> Store {
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
                options.placement,
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
            index: Index::new(sizes, options.fingerprint, name_mask),
            clock: 0,
        }
    }

    /// A new sequence without tokens.
    pub fn create(&mut self) -> SequenceId {
        let tables = self.groups.iter().map(|group| Table::new(group.block_tokens)).collect();
        let (tokens, tips) = (Vec::new(), self.index.no_tips());
        self.insert(Sequence { tokens, length: 0, shifted: false, salt: None, tables, tips })
    }

    pub(super) fn insert(&mut self, sequence: Sequence) -> SequenceId {
        let id = SequenceId(self.next_id);
        self.next_id += 1;
        self.sequences.insert(id, sequence);
        id
    }

    /// The prepared tokens' rows are in the cache: blocks that are full now are known to sequences that begin alike.
    pub fn publish(&mut self, id: SequenceId) {
        let sequence = self.sequence_mut(id);
        let before = std::mem::replace(&mut sequence.length, sequence.tokens.len() as u32);
        self.name_filled(id, before);
    }

    /// The prepared cells are not used after all.
    pub fn undo(&mut self, arena: &mut dyn KvArena, id: SequenceId) {
        let length = self.sequence(id).length;
        self.cut(arena, id, length);
    }

    /// Forgets every token from index `length` on.
    ///
    /// # Errors
    /// There are fewer tokens, or the next one would see rows that a window has given back.
    ///
    /// # Panics
    /// The sequence does not exist or has cells that are not published.
    pub fn truncate(
        &mut self,
        arena: &mut dyn KvArena,
        id: SequenceId,
        length: u32,
    ) -> Result<(), StoreError> {
        let sequence = self.settled(id);
        if length > sequence.length {
            return Err(StoreError::TooShort { sequence: id.0, length: sequence.length, wanted: length });
        }
        self.check_sight(id, length, &sequence.tables)?;
        self.cut(arena, id, length);
        Ok(())
    }

    /// Forgets a sequence, its prepared cells included. What was published of it stays known until memory is wanted.
    ///
    /// # Panics
    /// The sequence does not exist.
    pub fn drop_sequence(&mut self, arena: &mut dyn KvArena, id: SequenceId) {
        self.undo(arena, id);
        self.name_tails(arena, id);
        self.cut(arena, id, 0);
        self.sequences.remove(&id);
    }

    /// A sequence of the same tokens that owns the same blocks. Neither sees what becomes of the other.
    ///
    /// # Panics
    /// The sequence does not exist or has cells that are not published.
    pub fn fork(&mut self, id: SequenceId) -> SequenceId {
        let sequence = self.settled(id).clone();
        for (group, table) in self.groups.iter_mut().zip(&sequence.tables) {
            table.blocks().into_iter().for_each(|block| group.pool.share(block));
        }
        self.index.hold(&sequence.tips);
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

    /// Whether tokens were removed from within: rows then also depend on those that are gone.
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

    /// Where a sequence's rows lie, every position once and in order, the prepared ones too. Rows that a window has given back are
    /// runs of block [`EVICTED`](minfer_graph::EVICTED).
    pub fn rows(&self, group: usize, id: SequenceId) -> Vec<KvRun> {
        let sequence = self.sequence(id);
        sequence.tables[group].runs(sequence.tokens.len() as u32)
    }

    /// Whether rows of sequences that are gone, or of others, can begin a new one.
    pub fn keeps_prefixes(&self) -> bool {
        self.cache
    }

    /// Groups of layers.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Forgets the tokens from `length` on, the prepared ones too.
    pub(super) fn cut(&mut self, arena: &mut dyn KvArena, id: SequenceId, length: u32) {
        let sequence = self.sequences.get_mut(&id).expect("the sequence exists");
        self.index.cut(&mut sequence.tips, sequence.length, length);
        sequence.tokens.truncate(length as usize);
        sequence.length = length;
        sequence.shifted &= length > 0;
        for group in 0..self.groups.len() {
            let given_up = self.sequence_mut(id).tables[group].cut(length);
            self.give_back(arena, group, given_up);
        }
    }

    /// A sequence has given up these blocks.
    pub(super) fn give_back(&mut self, arena: &mut dyn KvArena, group: usize, blocks: Vec<u32>) {
        for block in blocks {
            self.clock += 1;
            if self.groups[group].pool.give(block, self.clock) {
                arena.release(group, block);
            }
        }
    }

    pub(super) fn sequence(&self, id: SequenceId) -> &Sequence {
        self.sequences.get(&id).expect("the sequence exists")
    }

    pub(super) fn sequence_mut(&mut self, id: SequenceId) -> &mut Sequence {
        self.sequences.get_mut(&id).expect("the sequence exists")
    }

    /// A sequence without prepared cells.
    pub(super) fn settled(&self, id: SequenceId) -> &Sequence {
        let sequence = self.sequence(id);
        let published = sequence.length as usize == sequence.tokens.len();
        assert!(published, "KV sequence {} has cells that are not published", id.0);
        sequence
    }

    pub(super) fn settled_mut(&mut self, id: SequenceId) -> &mut Sequence {
        self.settled(id);
        self.sequence_mut(id)
    }
}
