//! Cells for new tokens: blocks taken and committed, shared ones copied first.

use minfer_graph::BackendError;
use minfer_graph::backend::KvArena;

use super::error::StoreError;
use super::store::{SequenceId, Store};

/// Blocks that an operation has taken and will own once all of it has succeeded.
pub(super) type Taken = Vec<Vec<u32>>;

impl Store {
    /// Takes cells for the next `tokens` of a sequence. Where they begin in a block that others own too, or that is known to the
    /// cache, the sequence first gets a copy of the rows before them: nobody else's rows are ever written.
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
        let sequence = self.settled(id);
        let (from, count) = (sequence.length, tokens.len() as u32);
        if count == 0 {
            return Ok(());
        }
        let copies: Vec<Option<(u32, u32)>> =
            (0..self.groups.len()).map(|group| self.copied_tail(group, id)).collect();
        let wanted: Vec<u32> = (0..self.groups.len())
            .map(|group| {
                self.sequence(id).tables[group].lacks(from, count) + u32::from(copies[group].is_some())
            })
            .collect();
        let mut taken = self.take(arena, id.number(), (from, from + count), &wanted)?;
        for (group, copy) in copies.iter().enumerate() {
            let Some((block, rows)) = *copy else { continue };
            let own = taken[group][0];
            if let Err(source) = arena.copy_rows(group, block, own, 0..rows) {
                self.give_back_all(arena, taken);
                return Err(StoreError::Refused { sequence: id.number(), from, to: from + count, source });
            }
        }
        for (group, copy) in copies.into_iter().enumerate() {
            if let Some((block, rows)) = copy {
                let own = taken[group].remove(0);
                self.sequence_mut(id).tables[group].replace(block, own);
                self.give_back(arena, group, vec![block]);
                self.counters.blocks_copied += 1;
                self.counters.rows_copied += u64::from(rows);
            }
            self.sequence_mut(id).tables[group].extend(from, count, &taken[group]);
        }
        self.sequence_mut(id).tokens.extend_from_slice(tokens);
        Ok(())
    }

    /// The block that the sequence's next row would go to, and the rows before it, if the sequence may not write there.
    pub(super) fn copied_tail(&self, group: usize, id: SequenceId) -> Option<(u32, u32)> {
        let sequence = self.sequence(id);
        let (block, rows) = sequence.tables[group].tail(sequence.length)?;
        (self.groups[group].pool.owners(block) > 1).then_some((block, rows))
    }

    /// Takes and commits `wanted` blocks of each group, or none.
    pub(super) fn take(
        &mut self,
        arena: &mut dyn KvArena,
        sequence: u64,
        (from, to): (u32, u32),
        wanted: &[u32],
    ) -> Result<Taken, StoreError> {
        for (group, &wanted) in self.groups.iter().zip(wanted) {
            let (free, total) = (group.pool.free(), group.pool.total());
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
                        self.give_back_all(arena, taken);
                        return Err(StoreError::Refused { sequence, from, to, source });
                    }
                }
            }
        }
        Ok(taken)
    }

    fn take_one(&mut self, arena: &mut dyn KvArena, group: usize) -> Result<u32, BackendError> {
        let pool = &mut self.groups[group].pool;
        let block = pool.take().expect("free blocks were counted");
        arena.commit(group, block).inspect_err(|_| {
            pool.give(block);
            pool.free_up(block);
        })?;
        Ok(block)
    }

    pub(super) fn give_back_all(&mut self, arena: &mut dyn KvArena, taken: Taken) {
        for (group, blocks) in taken.into_iter().enumerate() {
            self.give_back(arena, group, blocks);
        }
    }
}
