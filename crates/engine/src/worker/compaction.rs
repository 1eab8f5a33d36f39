//! Compaction: moves blocks to lower places so that memory of high granules can be released.

use super::Worker;
use super::transfers::IDLE_SLICE;

/// Bytes that are copied between two steps; at least one block.
const MOVED_AT_ONCE: u64 = 2 << 20;
/// Compaction runs if it releases at least one byte in this many of the committed ones.
const WORTH: u64 = 8;

impl Worker {
    /// What an idle engine does before it waits for commands: moves rows that are on their way, then
    /// blocks, and publishes the stats. Returns whether there may be more to do.
    pub(crate) fn tidy_up(&mut self) -> bool {
        let more = self.move_rows(IDLE_SLICE) || self.compact_some();
        if more {
            self.settle();
        }
        more
    }

    /// Moves some blocks if ended requests have left the others spread over much more memory than
    /// they need. Returns whether there may be more to move. No sequence may have unpublished
    /// cells.
    pub(super) fn compact_some(&mut self) -> bool {
        if !self.fragmented || self.is_receiving() {
            return false;
        }
        let before = self.model.arena().memory();
        let spare = before.committed.saturating_sub(self.store.packed_bytes(before.granule));
        if spare == 0 || spare < before.committed / WORTH {
            self.fragmented = false;
            return false;
        }
        let most = MOVED_AT_ONCE / self.store.largest_block_bytes().max(1);
        let moved = self.store.compact(self.model.arena(), most.clamp(1, u64::from(u32::MAX)) as u32);
        // If memory for the copies is refused, nothing has changed; the next request that ends
        // tries again.
        self.fragmented = moved.is_ok_and(|moved| moved > 0);
        if self.fragmented {
            self.counts.compactions += 1;
            let after = self.model.arena().committed_bytes();
            let freed = before.committed.cast_signed() - after.cast_signed();
            self.counts.compacted_bytes = self.counts.compacted_bytes.saturating_add_signed(freed);
        }
        self.fragmented
    }
}
