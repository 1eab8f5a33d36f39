//! Sequences and their block tables.

use std::collections::BTreeMap;

use minfer_graph::backend::KvArena;
use minfer_graph::{BackendError, BlockTable, KvSpec};

use super::blocks::{BlockPool, Placement};

/// Names a sequence of one store; never used again after the sequence is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceId(u64);

/// Positional blocks of every group, and who owns them.
///
/// A step first [`prepare`](Self::prepare)s cells for the tokens it will feed, then either
/// [`publish`](Self::publish)es or [`undo`](Self::undo)es them.
#[derive(Debug)]
pub struct Store {
    groups: Vec<Group>,
    sequences: BTreeMap<SequenceId, Sequence>,
    next_id: u64,
}

#[derive(Debug)]
struct Group {
    block_tokens: u32,
    pool: BlockPool,
}

#[derive(Debug)]
struct Sequence {
    /// Tokens whose rows are in the cache.
    length: u32,
    /// Tokens whose cells are taken but not yet published.
    prepared: u32,
    /// One table per group; entry `p / block_tokens` holds position `p`.
    tables: Vec<Vec<u32>>,
}

/// Why the store could not do what was asked. Nothing has changed then.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// More blocks than are free.
    #[error(
        "KV sequence {sequence}: {wanted} more blocks for positions {from}..{to}, but {free} of {total} are free"
    )]
    NoBlocks {
        /// The sequence.
        sequence: u64,
        /// Blocks that it lacks.
        wanted: u32,
        /// Blocks that nobody owns.
        free: u32,
        /// All blocks of the group.
        total: u32,
        /// First position to be stored.
        from: u32,
        /// One past the last position to be stored.
        to: u32,
    },
    /// The arena could not bring a block into memory.
    #[error("KV sequence {sequence}: positions {from}..{to}: {source}")]
    Refused {
        /// The sequence.
        sequence: u64,
        /// First position to be stored.
        from: u32,
        /// One past the last position to be stored.
        to: u32,
        /// The arena's answer.
        source: BackendError,
    },
    /// The sequence has fewer tokens than it is to be cut to.
    #[error("KV sequence {sequence} has {length} tokens and cannot be cut to {wanted}")]
    TooShort {
        /// The sequence.
        sequence: u64,
        /// Its tokens.
        length: u32,
        /// Tokens that were to remain.
        wanted: u32,
    },
}

/// Counts of blocks, summed over groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KvStats {
    /// Blocks that the budget allows.
    pub blocks_total: u64,
    /// Blocks that sequences own, each counted once.
    pub blocks_live: u64,
    /// Sequences.
    pub sequences: u64,
    /// Tokens in the cache.
    pub tokens: u64,
}

impl Store {
    /// An empty store over `spec`'s groups. `most_blocks` lowers the blocks of each group.
    pub fn new(spec: &KvSpec, most_blocks: Option<u32>, placement: Placement) -> Store {
        let group = |(group, &blocks): (&minfer_graph::KvGroupSpec, &u32)| Group {
            block_tokens: group.block_tokens,
            pool: BlockPool::new(most_blocks.map_or(blocks, |most| most.min(blocks)), placement),
        };
        Store {
            groups: spec.groups.iter().zip(&spec.max_blocks).map(group).collect(),
            sequences: BTreeMap::new(),
            next_id: 0,
        }
    }

    /// A new sequence without tokens.
    pub fn create(&mut self) -> SequenceId {
        let id = SequenceId(self.next_id);
        self.next_id += 1;
        let tables = vec![Vec::new(); self.groups.len()];
        self.sequences.insert(id, Sequence { length: 0, prepared: 0, tables });
        id
    }

    /// Takes cells for the next `tokens` positions of a sequence.
    ///
    /// # Errors
    /// Too few free blocks, or the arena refused memory.
    ///
    /// # Panics
    /// The sequence does not exist or has cells that are not published.
    pub fn prepare(
        &mut self,
        arena: &mut dyn KvArena,
        id: SequenceId,
        tokens: u32,
    ) -> Result<(), StoreError> {
        let sequence = self.sequences.get_mut(&id).expect("the sequence exists");
        assert_eq!(sequence.prepared, 0, "KV sequence {} has cells that are not published", id.0);
        let (from, to) = (sequence.length, sequence.length + tokens);
        for (group, table) in self.groups.iter().zip(&sequence.tables) {
            let wanted = group.blocks_for(to) - table.len() as u32;
            let (free, total) = (group.pool.free(), group.pool.total());
            if wanted > free {
                return Err(StoreError::NoBlocks { sequence: id.0, wanted, free, total, from, to });
            }
        }
        let grown = grow(&mut self.groups, sequence, arena, to);
        if let Err(source) = grown {
            cut(&mut self.groups, sequence, arena, from);
            return Err(StoreError::Refused { sequence: id.0, from, to, source });
        }
        sequence.prepared = tokens;
        Ok(())
    }

    /// The prepared tokens' rows are in the cache.
    pub fn publish(&mut self, id: SequenceId) {
        let sequence = self.sequences.get_mut(&id).expect("the sequence exists");
        sequence.length += std::mem::take(&mut sequence.prepared);
    }

    /// The prepared cells are not used after all.
    pub fn undo(&mut self, arena: &mut dyn KvArena, id: SequenceId) {
        let sequence = self.sequences.get_mut(&id).expect("the sequence exists");
        sequence.prepared = 0;
        let length = sequence.length;
        cut(&mut self.groups, sequence, arena, length);
    }

    /// Forgets every token from index `length` on.
    ///
    /// # Errors
    /// There are fewer tokens.
    ///
    /// # Panics
    /// The sequence does not exist or has cells that are not published.
    pub fn truncate(
        &mut self,
        arena: &mut dyn KvArena,
        id: SequenceId,
        length: u32,
    ) -> Result<(), StoreError> {
        let sequence = self.sequences.get_mut(&id).expect("the sequence exists");
        assert_eq!(sequence.prepared, 0, "KV sequence {} has cells that are not published", id.0);
        if length > sequence.length {
            return Err(StoreError::TooShort { sequence: id.0, length: sequence.length, wanted: length });
        }
        sequence.length = length;
        cut(&mut self.groups, sequence, arena, length);
        Ok(())
    }

    /// Forgets a sequence, its prepared cells included.
    ///
    /// # Panics
    /// The sequence does not exist.
    pub fn drop_sequence(&mut self, arena: &mut dyn KvArena, id: SequenceId) {
        let mut sequence = self.sequences.remove(&id).expect("the sequence exists");
        cut(&mut self.groups, &mut sequence, arena, 0);
    }

    /// Tokens whose rows are in the cache.
    pub fn length(&self, id: SequenceId) -> u32 {
        self.sequence(id).length
    }

    /// Tokens whose cells are taken but not yet published.
    pub fn prepared(&self, id: SequenceId) -> u32 {
        self.sequence(id).prepared
    }

    /// A sequence's blocks in order.
    pub fn table(&self, group: usize, id: SequenceId) -> BlockTable<'_> {
        BlockTable::Aligned(&self.sequence(id).tables[group])
    }

    /// The cells of the prepared positions, in order.
    pub fn cells(&self, group: usize, id: SequenceId) -> impl Iterator<Item = u32> + '_ {
        let sequence = self.sequence(id);
        let block_tokens = self.groups[group].block_tokens;
        (sequence.length..sequence.length + sequence.prepared).map(move |position| {
            let block = sequence.tables[group][(position / block_tokens) as usize];
            block * block_tokens + position % block_tokens
        })
    }

    /// Groups of layers.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Tokens that one sequence has room for when it is alone.
    pub fn capacity(&self) -> u64 {
        let tokens = |group: &Group| u64::from(group.pool.total()) * u64::from(group.block_tokens);
        self.groups.iter().map(tokens).min().unwrap_or(u64::MAX)
    }

    /// How many of new sequences with these token counts fit beside `reserved` sequences that grow to theirs: the
    /// longest prefix of `wanted`.
    pub fn fitting(&self, reserved: &[(SequenceId, u32)], wanted: impl Iterator<Item = u32>) -> usize {
        let mut room: Vec<i64> = self.groups.iter().map(|group| i64::from(group.pool.free())).collect();
        for &(id, tokens) in reserved {
            for (index, group) in self.groups.iter().enumerate() {
                let owned = self.sequence(id).tables[index].len() as i64;
                room[index] -= (i64::from(group.blocks_for(tokens)) - owned).max(0);
            }
        }
        let mut fits = |tokens: u32| {
            self.groups.iter().zip(&mut room).all(|(group, room)| {
                *room -= i64::from(group.blocks_for(tokens));
                *room >= 0
            })
        };
        wanted.take_while(|&tokens| fits(tokens)).count()
    }

    /// Counts.
    pub fn stats(&self) -> KvStats {
        let sum = |count: fn(&BlockPool) -> u32| -> u64 {
            self.groups.iter().map(|group| u64::from(count(&group.pool))).sum()
        };
        let blocks_total = sum(BlockPool::total);
        KvStats {
            blocks_total,
            blocks_live: blocks_total - sum(BlockPool::free),
            sequences: self.sequences.len() as u64,
            tokens: self.sequences.values().map(|sequence| u64::from(sequence.length)).sum(),
        }
    }

    fn sequence(&self, id: SequenceId) -> &Sequence {
        self.sequences.get(&id).expect("the sequence exists")
    }
}

impl Group {
    fn blocks_for(&self, tokens: u32) -> u32 {
        tokens.div_ceil(self.block_tokens)
    }
}

/// Takes and commits blocks until the tables hold `length` positions; on a refusal the tables hold only committed ones.
fn grow(
    groups: &mut [Group],
    sequence: &mut Sequence,
    arena: &mut dyn KvArena,
    length: u32,
) -> Result<(), BackendError> {
    for (index, (group, table)) in groups.iter_mut().zip(&mut sequence.tables).enumerate() {
        while (table.len() as u32) < group.blocks_for(length) {
            let block = group.pool.take().expect("free blocks were counted");
            if let Err(error) = arena.commit(index, block) {
                group.pool.give(block);
                return Err(error);
            }
            table.push(block);
        }
    }
    Ok(())
}

/// Gives back the blocks behind `length` positions.
fn cut(groups: &mut [Group], sequence: &mut Sequence, arena: &mut dyn KvArena, length: u32) {
    for (index, (group, table)) in groups.iter_mut().zip(&mut sequence.tables).enumerate() {
        for block in table.drain(group.blocks_for(length) as usize..) {
            if group.pool.give(block) {
                arena.release(index, block);
            }
        }
    }
}

#[cfg(test)]
mod tests;
