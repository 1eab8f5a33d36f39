//! Context shift: removing tokens from within a sequence.

use std::collections::BTreeSet;
use std::ops::Range;

use minfer_graph::EVICTED;
use minfer_graph::backend::KvArena;

use super::error::StoreError;
use super::store::{SequenceId, Store};
use super::table::Table;

/// Most distinct rope offsets, besides 0, of the rows of a sequence of so many positions. A shift
/// removes at least half of what it may, the oldest first, so a row survives at most
/// log2(positions) + 1 shifts, and rows that survived the same shifts have one offset.
pub fn most_rope_offsets(positions: u32) -> u32 {
    u32::BITS - positions.leading_zeros() + 1
}

impl Store {
    /// Removes tokens; later ones move down. No row is written: each run keeps the position offset
    /// at which its K rows were rotated, and attention rotates queries by that offset.
    ///
    /// Unless the removed tokens are the last ones, the sequence is marked as shifted: its blocks
    /// no longer enter the prefix index.
    ///
    /// # Errors
    /// There are no such tokens, the next token would see rows that a window has released, or rows
    /// would have more rope offsets than a sequence's may.
    ///
    /// # Panics
    /// The sequence does not exist or has cells that are not published.
    pub fn remove(
        &mut self,
        arena: &mut dyn KvArena,
        id: SequenceId,
        range: Range<u32>,
    ) -> Result<(), StoreError> {
        let sequence = self.published(id);
        let length = sequence.length;
        if range.start > range.end || range.end > length {
            let (from, to) = (range.start, range.end);
            return Err(StoreError::NoSuchTokens { sequence: id.number(), length, from, to });
        }
        if range.is_empty() {
            return Ok(());
        }
        if range.end == length {
            return self.truncate(arena, id, range.start);
        }
        let mut tables = sequence.tables.clone();
        let given_up: Vec<Vec<u32>> =
            tables.iter_mut().map(|table: &mut Table| table.remove(&range, length)).collect();
        let left = length - (range.end - range.start);
        self.check_sight(id, left, &tables)?;
        let runs = tables.iter().flat_map(|table| table.runs(left));
        self.check_offsets(runs.filter(|run| run.block != EVICTED).map(|run| run.rope_offset))?;
        let sequence = self.sequences.get_mut(&id).expect("the sequence exists");
        self.index.cut(&mut sequence.last_nodes, length, 0);
        sequence.tokens.drain(range.start as usize..range.end as usize);
        sequence.length = sequence.tokens.len() as u32;
        sequence.shifted = true;
        sequence.tables = tables;
        for (group, blocks) in given_up.into_iter().enumerate() {
            self.release_blocks(arena, group, blocks);
        }
        Ok(())
    }

    /// Whether rows of a sequence may have these rope offsets.
    pub(super) fn check_offsets(&self, offsets: impl Iterator<Item = u32>) -> Result<(), StoreError> {
        let found = offsets.filter(|&offset| offset > 0).collect::<BTreeSet<_>>().len();
        let most = self.most_rope_offsets;
        if found > most as usize { Err(StoreError::TooManyOffsets { found, most }) } else { Ok(()) }
    }
}
