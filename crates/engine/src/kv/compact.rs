//! Compaction: moves blocks to low indexes, so that memory of high granules can be released.

use minfer_graph::backend::KvArena;

use super::error::StoreError;
use super::store::{Group, Store};

/// A block's move inside its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Move {
    group: usize,
    from: u32,
    to: u32,
}

impl Store {
    /// Moves up to `most` blocks to lower free places of their groups, the highest first. Returns
    /// how many. Block tables name the new places; no row changes.
    ///
    /// # Errors
    /// The arena refused a block or a copy; nothing has moved then.
    ///
    /// # Panics
    /// A sequence has cells that are not published.
    pub fn compact(&mut self, arena: &mut dyn KvArena, most: u32) -> Result<u32, StoreError> {
        for &id in self.sequences.keys() {
            self.published(id);
        }
        let moves = self.plan_moves(most);
        for (index, &step) in moves.iter().enumerate() {
            let Move { group, from, to } = step;
            let all = 0..self.groups[group].block_tokens;
            let committed = arena.commit(group, to);
            let copied = committed.clone().and_then(|()| arena.copy_rows(group, from, to, all));
            if let Err(source) = copied {
                let done = moves[..index].iter().chain(committed.is_ok().then_some(&step));
                done.for_each(|step| arena.release(step.group, step.to));
                return Err(StoreError::Unmovable { group, from, to, source });
            }
        }
        for step in &moves {
            self.rename(*step);
            arena.release(step.group, step.from);
        }
        self.counters.blocks_moved += moves.len() as u64;
        Ok(moves.len() as u32)
    }

    /// Bytes of the granules in which all blocks in use would lie if every block had moved down.
    pub fn packed_bytes(&self, granule: u64) -> u64 {
        let used = |group: &Group| u64::from(group.pool.total() - group.pool.free()) * group.block_bytes;
        self.groups.iter().map(|group| used(group).next_multiple_of(granule)).sum()
    }

    /// Bytes of the largest block.
    pub(crate) fn largest_block_bytes(&self) -> u64 {
        self.groups.iter().map(|group| group.block_bytes).max().unwrap_or(0)
    }

    /// Pairs the highest blocks in use with the lowest free ones below them.
    fn plan_moves(&self, most: u32) -> Vec<Move> {
        let mut moves = Vec::new();
        for (group, blocks) in self.groups.iter().enumerate() {
            let used = blocks.pool.total() - blocks.pool.free();
            let is_free = blocks.pool.free_blocks();
            let above = (used..blocks.pool.total()).rev().filter(|&block| !is_free[block as usize]);
            let below = (0..used).filter(|&block| is_free[block as usize]);
            moves.extend(above.zip(below).map(|(from, to)| Move { group, from, to }));
        }
        moves.truncate(most as usize);
        moves
    }

    fn rename(&mut self, Move { group, from, to }: Move) {
        let Group { pool, block_tokens, .. } = &mut self.groups[group];
        if let Some(name) = pool.entry(from) {
            self.index.tree_mut(*block_tokens).rename(name.node, group, from, to);
        }
        pool.rename(from, to);
        for sequence in self.sequences.values_mut() {
            sequence.tables[group].replace(from, to);
        }
    }
}
