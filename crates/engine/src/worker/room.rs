//! Making room: conversations that nobody uses, younger sequences, forgotten tokens.

use std::sync::Arc;

use minfer_graph::BackendError;

use super::Worker;
use crate::EngineError;
use crate::event::Event;
use crate::kv::{SequenceId, Shape, StoreError, session};
use crate::session::{Rows, SessionId, Swapped};

impl Worker {
    /// Positions that a sequence may have in the cache.
    pub(super) fn most_rows(&self) -> u32 {
        u32::try_from(self.store.capacity()).unwrap_or(u32::MAX).min(self.n_ctx)
    }

    /// Takes cells for a running sequence. Where there is no room, conversations that nobody uses and then the youngest
    /// sequences give theirs; one that is alone and still has no room forgets or ends.
    pub(super) fn prepare(&mut self, mut index: usize, tokens: u32) -> bool {
        if !self.shift_if_full(index, tokens) {
            return false;
        }
        loop {
            let sequence = &self.running[index];
            let fed = &sequence.tokens()[sequence.fed..][..tokens as usize];
            let Err(error) = self.store.prepare(self.model.arena(), sequence.kv(), fed) else { return true };
            if self.release_idle() {
                continue;
            }
            if self.running.len() == 1 {
                if self.shift(index, 0) {
                    continue;
                }
                self.exhausted(error);
                return false;
            }
            let victim = self.victim();
            self.preempt(victim);
            if victim == index {
                return false;
            }
            index -= usize::from(victim < index);
        }
    }

    /// Forgets where a sequence would outgrow the context. Tells whether it can go on.
    fn shift_if_full(&mut self, index: usize, tokens: u32) -> bool {
        let sequence = &self.running[index];
        let excess = (self.store.length(sequence.kv()) + tokens).saturating_sub(self.most_rows());
        if excess == 0 || sequence.context_shift.is_none() || self.shift(index, excess) {
            return true;
        }
        let sequence = self.running.remove(index);
        self.end(sequence, Event::Failed(EngineError::NothingToForget { n_ctx: self.most_rows() as usize }));
        false
    }

    /// Forgets half of what follows the kept tokens, the oldest first, and at least `least`. Tells whether that was possible.
    fn shift(&mut self, index: usize, least: u32) -> bool {
        let sequence = &self.running[index];
        let Some(shift) = sequence.context_shift else { return false };
        let (kv, length) = (sequence.kv(), self.store.length(sequence.kv()));
        let keep = shift.keep.min(length);
        let count = ((length - keep) / 2).max(least).min(length - keep);
        let removed = count > 0 && self.store.remove(self.model.arena(), kv, keep..keep + count).is_ok();
        if removed {
            self.running[index].history.remove(keep..keep + count);
            self.counts.shifts += 1;
            self.counts.shifted_tokens += u64::from(count);
        }
        removed
    }

    /// The youngest running sequence whose rows can be computed again, else the youngest; never the oldest of several.
    fn victim(&self) -> usize {
        let recomputable = |index: &usize| self.running[*index].history.removed().is_empty();
        (1..self.running.len()).rev().find(recomputable).unwrap_or(self.running.len() - 1)
    }

    /// A running sequence goes back to the front of the queue without its cells. Rows that cannot be computed again are kept
    /// in the host's memory.
    fn preempt(&mut self, index: usize) {
        let mut sequence = self.running.remove(index);
        let kv = sequence.kv();
        if sequence.history.removed().is_empty() {
            self.store.drop_sequence(self.model.arena(), kv);
            sequence.fed = 0;
            sequence.rows = Rows::None;
        } else {
            match self.swap_out(kv) {
                Ok(swapped) => sequence.rows = Rows::Swapped(Arc::new(swapped)),
                Err(error) => return self.end(sequence, Event::Failed(EngineError::Backend(error))),
            }
        }
        self.counts.preemptions += 1;
        self.waiting.push_front(sequence);
    }

    /// The only running sequence has no room for its next token.
    fn exhausted(&mut self, error: StoreError) {
        let mut sequence = self.running.pop().expect("a sequence runs");
        let event = match sequence.generated() {
            0 => Event::Failed(EngineError::Kv(error)),
            _ => Event::Finished(sequence.exhausted()),
        };
        self.end(sequence, event);
    }

    /// The conversation that has been idle for longest gives its cells. Tells whether one had any.
    fn release_idle(&mut self) -> bool {
        let idle = self.sessions.iter().filter(|(_, session)| matches!(session.rows, Rows::Cached(_)));
        let Some(id) = idle.min_by_key(|(_, session)| session.used).map(|(&id, _)| id) else { return false };
        self.release(id);
        true
    }

    /// An idle conversation gives its cells.
    fn release(&mut self, id: SessionId) {
        let session = self.sessions.get_mut(&id).expect("a conversation");
        let Rows::Cached(kv) = session.rows else { return };
        session.rows = Rows::None;
        let swapped = if session.history.removed().is_empty() {
            self.store.drop_sequence(self.model.arena(), kv);
            None
        } else {
            self.swap_out(kv).ok()
        };
        let session = self.sessions.get_mut(&id).expect("a conversation");
        match swapped {
            Some(swapped) => session.rows = Rows::Swapped(Arc::new(swapped)),
            None => session.forget(),
        }
    }

    /// Copies a sequence's rows to the host's memory and drops it from the store.
    fn swap_out(&mut self, kv: SequenceId) -> Result<Swapped, BackendError> {
        let (shape, places) = (self.store.shape(kv), session::places(&self.store, kv));
        let arena = self.model.arena();
        let mut bytes = Vec::new();
        let read = session::pieces(&arena.spec().clone(), &places).try_for_each(|(rows, count)| {
            let start = bytes.len();
            bytes.resize(start + count, 0);
            arena.read_rows(&rows, &mut bytes[start..])
        });
        self.store.drop_sequence(arena, kv);
        self.counts.swaps += 1;
        read.map(|()| Swapped { shape, bytes })
    }

    /// Brings swapped rows back.
    pub(super) fn swap_in(
        &mut self,
        swapped: &Swapped,
        salt: Option<u64>,
    ) -> Result<SequenceId, EngineError> {
        let kv = self.restore(&swapped.shape, salt)?;
        let places = session::places(&self.store, kv);
        let arena = self.model.arena();
        let mut rest = swapped.bytes.as_slice();
        let written = session::pieces(&arena.spec().clone(), &places).try_for_each(|(rows, count)| {
            let (bytes, after) = rest.split_at(count);
            rest = after;
            arena.write_rows(&rows, bytes)
        });
        match written {
            Ok(()) => {
                self.store.publish(kv);
                Ok(kv)
            }
            Err(error) => {
                self.store.drop_sequence(arena, kv);
                Err(EngineError::Backend(error))
            }
        }
    }

    /// Makes room for a sequence whose rows come from elsewhere; idle conversations give theirs for it.
    pub(super) fn restore(&mut self, shape: &Shape, salt: Option<u64>) -> Result<SequenceId, StoreError> {
        loop {
            let restored = self.store.restore(self.model.arena(), shape.clone(), salt);
            if restored.is_ok() || !self.release_idle() {
                return restored;
            }
        }
    }
}
