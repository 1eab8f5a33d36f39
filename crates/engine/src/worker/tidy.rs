//! Moving rows down where that gives memory back.

use super::Worker;

/// Bytes of rows that are copied between two steps, if that is a block at least.
const MOVED_AT_ONCE: u64 = 2 << 20;
/// One in so many bytes of the cache must be given back for the copies to be worth it.
const WORTH: u64 = 8;

impl Worker {
    /// What an engine without work does before it waits: [`tidy`](Self::tidy), with its counts public.
    pub(crate) fn tidy_idle(&mut self) -> bool {
        let more = self.tidy();
        if more {
            self.settle();
        }
        more
    }

    /// Moves some blocks down if requests that ended have left the rest spread over much more memory than it needs. Tells
    /// whether there may be more to move. Every sequence's cells must be published.
    pub(super) fn tidy(&mut self) -> bool {
        if !self.untidy {
            return false;
        }
        let before = self.model.arena().memory();
        let spare = before.committed.saturating_sub(self.store.packed_bytes(before.granule));
        if spare == 0 || spare < before.committed / WORTH {
            self.untidy = false;
            return false;
        }
        let most = MOVED_AT_ONCE / self.store.largest_block_bytes().max(1);
        let moved = self.store.compact(self.model.arena(), most.clamp(1, u64::from(u32::MAX)) as u32);
        // Where memory for the copies is refused nothing has changed, and the next end of a request asks again.
        self.untidy = moved.is_ok_and(|moved| moved > 0);
        if self.untidy {
            self.counts.compactions += 1;
            let after = self.model.arena().committed_bytes();
            let freed = before.committed.cast_signed() - after.cast_signed();
            self.counts.compacted_bytes = self.counts.compacted_bytes.saturating_add_signed(freed);
        }
        self.untidy
    }
}
