//! Attention windows: releases rows that no later token sees, and tells which operations would miss
//! them.

use std::ops::Range;

use minfer_graph::backend::KvArena;

use super::error::StoreError;
use super::restore::{LayoutRun, SequenceLayout, holes};
use super::store::{Group, SequenceId, Store};
use super::table::Table;

/// The first of `cached` positions that is kept for the next query and every later one: the first
/// that the next one sees, but the last position at least, so that the block that is being filled
/// is always there.
pub(super) fn first_seen(window: Option<u32>, cached: u32) -> u32 {
    window.map_or(0, |window| (cached + 1).saturating_sub(window.max(2)))
}

impl Store {
    /// Releases the blocks of window groups that no later token of the sequence sees, except those
    /// of its first `anchors` tokens. Returns how many.
    ///
    /// # Panics
    /// The sequence does not exist or has cells that are not published.
    pub fn evict_window(&mut self, arena: &mut dyn KvArena, id: SequenceId, anchors: u32) -> u32 {
        let mut count = 0;
        for group in 0..self.groups.len() {
            let sequence = self.published(id);
            let length = sequence.length;
            let seen = first_seen(self.groups[group].window, length);
            if anchors < seen {
                let given_up = self.published_mut(id).tables[group].evict(anchors..seen, length);
                count += given_up.len() as u32;
                self.release_blocks(arena, group, given_up);
            }
        }
        count
    }

    /// Whether a sequence cut to `length` tokens still has every row that the next token sees.
    pub fn can_truncate(&self, id: SequenceId, length: u32) -> bool {
        let sequence = self.sequence(id);
        length <= sequence.length && self.check_sight(id, length, &sequence.tables).is_ok()
    }

    /// As [`can_truncate`](Self::can_truncate) for a sequence that is to be restored.
    pub fn can_truncate_layout(&self, layout: &SequenceLayout, length: u32) -> bool {
        let sees_all = |(group, runs): (&Group, &Vec<LayoutRun>)| {
            let seen = first_seen(group.window, length);
            holes(runs).iter().all(|hole| hole.end <= seen || hole.start >= length)
        };
        length as usize <= layout.tokens.len() && self.groups.iter().zip(&layout.groups).all(sees_all)
    }

    /// Whether, once `range` is removed from `length` tokens, the next token's window reaches back
    /// over the range to positions that were out of sight before. Computed from the numbers alone,
    /// because which rows are really released depends on block borders, and no result may.
    pub fn removal_widens_sight(&self, length: u32, range: &Range<u32>) -> bool {
        let behind = length - range.end;
        let windows = self.groups.iter().filter_map(|group| group.window);
        range.start > 0 && windows.map(|window| window.max(2) - 1).any(|seen| length > seen && behind < seen)
    }

    /// Whether the next token of a sequence that would have `length` tokens in these tables sees
    /// only rows that are there.
    pub(super) fn check_sight(
        &self,
        id: SequenceId,
        length: u32,
        tables: &[Table],
    ) -> Result<(), StoreError> {
        for (group, table) in self.groups.iter().zip(tables) {
            let Some(window) = group.window else { continue };
            if let Some(position) = table.missing(first_seen(Some(window), length)..length) {
                return Err(StoreError::OutOfSight { sequence: id.number(), length, position, window });
            }
        }
        Ok(())
    }
}
