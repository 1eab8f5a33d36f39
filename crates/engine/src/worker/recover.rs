//! Going on after a panic.

use super::Worker;
use crate::EngineError;
use crate::event::Event;
use crate::guard::guarded;
use crate::session::RowStorage;

impl Worker {
    /// Runs `work`. After a panic in it that no single sequence caused the engine goes on: see
    /// [`start_anew`](Self::start_anew).
    pub(crate) fn contained<R>(&mut self, work: impl FnOnce(&mut Worker) -> R) -> Option<R> {
        let done = guarded(|| work(self));
        if let Err(error) = &done {
            self.start_anew(error);
            self.settle();
        }
        done.ok()
    }

    /// The running sequences fail and every row of the cache is dropped, since a panic may have
    /// left any part of the store half changed. Waiting requests go on; conversations are computed
    /// again from their tokens, but for those whose rows are in the host's memory.
    fn start_anew(&mut self, error: &EngineError) {
        let used = self.store.reset(self.model.kv_spec(), self.store_options);
        for (group, block) in used {
            // The panic may have come before the block was committed: then there is nothing to
            // release.
            let _ = guarded(|| self.model.arena().release(group, block));
        }
        self.forget_transfers();
        for mut sequence in std::mem::take(&mut self.running) {
            sequence.rows = RowStorage::None;
            self.end(sequence, Event::Failed(error.clone()));
        }
        // Requests that the panic dropped have told their clients.
        let known = self.counts.ended() + self.waiting.len() as u64;
        self.counts.failed += self.accepted.saturating_sub(known);
        for sequence in &mut self.waiting {
            if matches!(sequence.rows, RowStorage::Cached(_)) {
                sequence.give_up_rows();
            }
        }
        for session in self.sessions.values_mut() {
            session.user = session.user.filter(|user| self.waiting.iter().any(|other| other.id() == *user));
            if !matches!(session.rows, RowStorage::Swapped(_)) {
                session.rows = RowStorage::None;
            }
        }
        self.fragmented = false;
    }
}
