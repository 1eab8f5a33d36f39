//! Allocates cells for new tokens; shared blocks are copied first (copy on write).

use minfer_graph::BackendError;
use minfer_graph::backend::KvArena;

use super::error::StoreError;
use super::store::{SequenceId, Store};
use super::table::Table;

/// The block that the next row goes to.
struct Tail {
    block: u32,
    /// Rows before it.
    rows: u32,
    /// The block is shared or indexed: those rows are copied to a new block first.
    copied: bool,
}

/// Blocks that an operation has allocated; released again if it fails.
pub(super) type Taken = Vec<Vec<u32>>;

impl Store {
    /// Allocates cells for the next `tokens` of a sequence. If they begin in a block that is shared
    /// or in the prefix index, the rows before them are first copied to a block of the sequence's
    /// own.
    ///
    /// # Errors
    /// Too few blocks that are free or cached, or the arena refused memory.
    ///
    /// # Panics
    /// The sequence does not exist or has cells that are not published.
    pub fn prepare(
        &mut self,
        arena: &mut dyn KvArena,
        id: SequenceId,
        tokens: &[u32],
    ) -> Result<(), StoreError> {
        let sequence = self.published(id);
        let (from, count) = (sequence.length, tokens.len() as u32);
        if count == 0 {
            return Ok(());
        }
        let tails: Vec<Option<Tail>> =
            (0..self.groups.len()).map(|group| self.tail(group, id, count)).collect();
        let wanted: Vec<u32> = self.groups_lack(id, &tails, count);
        let mut taken = self.take(arena, id.number(), (from, from + count), &wanted)?;
        for (group, tail) in tails.iter().enumerate() {
            let Some(Tail { block, rows, copied: true }) = *tail else { continue };
            if let Err(source) = arena.copy_rows(group, block, taken[group][0], 0..rows) {
                self.release_all(arena, taken);
                return Err(StoreError::Refused { sequence: id.number(), from, to: from + count, source });
            }
        }
        for (group, tail) in tails.into_iter().enumerate() {
            match tail {
                Some(tail) if tail.copied => {
                    let own = taken[group].remove(0);
                    self.sequence_mut(id).tables[group].replace(tail.block, own);
                    self.release_blocks(arena, group, vec![tail.block]);
                    self.counters.blocks_copied += 1;
                    self.counters.rows_copied += u64::from(tail.rows);
                }
                Some(tail) => self.forget(group, tail.block),
                None => (),
            }
            self.sequence_mut(id).tables[group].extend(from, count, &taken[group]);
        }
        self.sequence_mut(id).tokens.extend_from_slice(tokens);
        Ok(())
    }

    /// The block that a sequence's next row goes to. It is copied if it is shared, and if the row
    /// would overwrite an indexed one, unless the copy's block is needed for other rows.
    fn tail(&self, group: usize, id: SequenceId, count: u32) -> Option<Tail> {
        let sequence = self.sequence(id);
        let table = &sequence.tables[group];
        let (block, rows) = table.tail(sequence.length)?;
        let pool = &self.groups[group].pool;
        let overwrites = pool.entry(block).is_some_and(|name| name.rows > rows);
        let room = table.lacks(sequence.length, count) < pool.available();
        Some(Tail { block, rows, copied: pool.owners(block) > 1 || (overwrites && room) })
    }

    /// Blocks of each group that `count` more tokens of a sequence take.
    fn groups_lack(&self, id: SequenceId, tails: &[Option<Tail>], count: u32) -> Vec<u32> {
        let sequence = self.sequence(id);
        let groups = sequence.tables.iter().zip(tails);
        let lack = |(table, tail): (&Table, &Option<Tail>)| {
            table.lacks(sequence.length, count) + u32::from(tail.as_ref().is_some_and(|tail| tail.copied))
        };
        groups.map(lack).collect()
    }

    /// Allocates and commits `wanted` blocks of each group, or none.
    pub(super) fn take(
        &mut self,
        arena: &mut dyn KvArena,
        sequence: u64,
        (from, to): (u32, u32),
        wanted: &[u32],
    ) -> Result<Taken, StoreError> {
        for (group, &wanted) in self.groups.iter().zip(wanted) {
            let (free, total) = (group.pool.available(), group.pool.total());
            if wanted > free {
                return Err(StoreError::NoBlocks { sequence, wanted, free, total, from, to });
            }
        }
        let mut taken: Taken = vec![Vec::new(); wanted.len()];
        for (group, &wanted) in wanted.iter().enumerate() {
            for _ in 0..wanted {
                match self.take_one(arena, group) {
                    Ok(block) => taken[group].push(block),
                    Err(source) => {
                        self.release_all(arena, taken);
                        return Err(StoreError::Refused { sequence, from, to, source });
                    }
                }
            }
        }
        Ok(taken)
    }

    /// Allocates and commits a block. Evicts cached blocks if none is free, and while the arena
    /// refuses memory.
    fn take_one(&mut self, arena: &mut dyn KvArena, group: usize) -> Result<u32, BackendError> {
        if self.groups[group].pool.free() == 0 {
            self.evict(arena, Some(group));
        }
        loop {
            let block = self.groups[group].pool.take().expect("blocks were counted");
            let Err(error) = arena.commit(group, block) else { return Ok(block) };
            self.groups[group].pool.give(block, 0);
            if !self.evict(arena, None) {
                return Err(error);
            }
        }
    }

    pub(super) fn release_all(&mut self, arena: &mut dyn KvArena, taken: Taken) {
        for (group, blocks) in taken.into_iter().enumerate() {
            self.release_blocks(arena, group, blocks);
        }
    }
}
