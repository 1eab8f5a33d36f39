//! Removing tokens from within a sequence.

use std::ops::Range;

use minfer_graph::backend::KvArena;

use super::error::StoreError;
use super::store::{SequenceId, Store};
use super::table::Table;

impl Store {
    /// Removes tokens; those behind them move down. No row is written: where the K rows of a run were rotated is kept with it, and
    /// attention rotates its queries further by that.
    ///
    /// The sequence is marked as shifted but where the removed tokens are its last ones, and its blocks are not published any
    /// more.
    ///
    /// # Errors
    /// There are no such tokens, or the next token would see rows that a window has given back.
    ///
    /// # Panics
    /// The sequence does not exist or has cells that are not published.
    pub fn remove(
        &mut self,
        arena: &mut dyn KvArena,
        id: SequenceId,
        range: Range<u32>,
    ) -> Result<(), StoreError> {
        let sequence = self.settled(id);
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
        self.check_sight(id, length - (range.end - range.start), &tables)?;
        let sequence = self.sequences.get_mut(&id).expect("the sequence exists");
        self.index.cut(&mut sequence.tips, length, 0);
        sequence.tokens.drain(range.start as usize..range.end as usize);
        sequence.length = sequence.tokens.len() as u32;
        sequence.shifted = true;
        sequence.tables = tables;
        for (group, blocks) in given_up.into_iter().enumerate() {
            self.give_back(arena, group, blocks);
        }
        Ok(())
    }
}
