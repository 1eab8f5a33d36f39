//! Making room: conversations that nobody uses, younger sequences, forgotten tokens.

use std::ops::Range;
use std::sync::Arc;

use minfer_graph::BackendError;

use super::Worker;
use crate::EngineError;
use crate::event::Event;
use crate::host::HostRoom;
use crate::kv::{SequenceId, Shape, StoreError, session};
use crate::session::{Rows, SessionId, Swapped};

/// What became of a sequence that wanted cells for the step.
pub(super) enum Cells {
    /// It has them.
    Taken,
    /// There are none, and nobody can give any: it waits for others to go on.
    Missing(StoreError),
    /// It does not run any more, or its rows are to be computed again first.
    GivenUp,
}

/// What came of a context shift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shift {
    /// There is nothing that may or can be forgotten.
    Impossible,
    /// The rows that are left stay where they are.
    Moved,
    /// The rows that are left are computed again.
    Restarted,
}

impl Worker {
    /// Positions that a sequence may have in the cache.
    pub(super) fn most_rows(&self) -> u32 {
        u32::try_from(self.store.capacity()).unwrap_or(u32::MAX).min(self.n_ctx)
    }

    /// Takes cells for a running sequence. Where there is no room, conversations that nobody uses and then the youngest
    /// sequences give theirs; one that is alone and still has no room forgets or ends.
    pub(super) fn prepare(&mut self, mut index: usize, tokens: u32) -> Cells {
        if !self.shift_if_full(index) {
            return Cells::GivenUp;
        }
        loop {
            let sequence = &self.running[index];
            let fed = &sequence.tokens()[sequence.fed..][..tokens as usize];
            let Err(error) = self.store.prepare(self.model.arena(), sequence.kv(), fed) else {
                return Cells::Taken;
            };
            if self.release_idle() {
                continue;
            }
            if self.running.len() == 1 {
                if self.forget_idle() {
                    continue;
                }
                match self.shift(index, 0) {
                    Shift::Moved => continue,
                    Shift::Restarted => return Cells::GivenUp,
                    Shift::Impossible => self.exhausted(index, error),
                }
                return Cells::GivenUp;
            }
            let Some((victim, room)) = self.victim(index) else { return Cells::Missing(error) };
            self.preempt(victim, room);
            if victim == index {
                return Cells::GivenUp;
            }
            index -= usize::from(victim < index);
        }
    }

    /// Every running sequence lacks cells, and nobody's rows have room elsewhere: a conversation that nobody uses is to be computed
    /// again, else the younger sequences forget, the youngest first, until a block is free. Where they have nothing more to
    /// forget the youngest ends. The oldest is as if it were alone.
    pub(super) fn unblock(&mut self, error: StoreError) {
        if self.forget_idle() {
            return;
        }
        let held = self.store.stats().blocks_live;
        for index in (1..self.running.len()).rev() {
            while self.shift(index, 0) != Shift::Impossible {
                if self.store.stats().blocks_live < held {
                    return;
                }
            }
        }
        self.exhausted(self.running.len() - 1, error);
    }

    /// Forgets where a sequence would outgrow the context with all of its tokens, however many of them a step feeds. Tells whether
    /// it goes on with the tokens that were chosen for the step.
    fn shift_if_full(&mut self, index: usize) -> bool {
        let sequence = &self.running[index];
        let excess = sequence.rows_known().saturating_sub(self.most_rows());
        if excess == 0 || sequence.context_shift.is_none() {
            return true;
        }
        match self.shift(index, excess) {
            Shift::Moved => true,
            Shift::Restarted => false,
            Shift::Impossible => {
                let sequence = self.running.remove(index);
                let n_ctx = self.most_rows() as usize;
                self.end(sequence, Event::Failed(EngineError::NothingToForget { n_ctx }));
                false
            }
        }
    }

    /// Forgets half of what follows the kept tokens, the oldest first, and at least `least`.
    fn shift(&mut self, index: usize, least: u32) -> Shift {
        let sequence = &self.running[index];
        let Some(shift) = sequence.context_shift else { return Shift::Impossible };
        let (kv, length) = (sequence.kv(), self.store.length(sequence.kv()));
        let keep = shift.keep.min(length);
        let count = ((length - keep) / 2).max(least).min(length - keep);
        let range = keep..keep + count;
        if count == 0 {
            return Shift::Impossible;
        }
        let outcome = if self.store.removal_widens_sight(length, &range) {
            self.restart_without(index, range);
            Shift::Restarted
        } else if self.store.remove(self.model.arena(), kv, range.clone()).is_ok() {
            self.running[index].history.remove(range);
            Shift::Moved
        } else {
            return Shift::Impossible;
        };
        self.counts.shifts += 1;
        self.counts.shifted_tokens += u64::from(count);
        outcome
    }

    /// A running sequence forgets the rows of `range`, and those that are left are computed again: a window would reach back over the
    /// range to rows that it has given back.
    fn restart_without(&mut self, index: usize, range: Range<u32>) {
        let mut sequence = self.running.remove(index);
        self.store.drop_sequence(self.model.arena(), sequence.kv());
        sequence.history.remove(range);
        sequence.give_up_rows();
        self.start(&mut sequence).expect("nothing has to come back");
        self.running.insert(index, sequence);
    }

    /// Who gives its cells for the sequence at `index`: the youngest whose rows can be computed again, else the youngest, of those
    /// that have no cells of this step yet, for whose rows the host has room. Never the oldest of several.
    fn victim(&self, index: usize) -> Option<(usize, Option<HostRoom>)> {
        let recomputable = |other: &usize| !self.store.is_shifted(self.running[*other].kv());
        if let Some(victim) = (1..self.running.len()).rev().find(recomputable) {
            return Some((victim, None));
        }
        let room = |other: usize| Some((other, Some(self.host_room(self.running[other].kv())?)));
        (index.max(1)..self.running.len()).rev().find_map(room)
    }

    /// A running sequence goes back to the front of the queue without its cells. Rows that cannot be computed again are kept
    /// in the host's memory, for which there is `room`.
    pub(super) fn preempt(&mut self, index: usize, room: Option<HostRoom>) {
        let mut sequence = self.running.remove(index);
        let kv = sequence.kv();
        match room.map(|room| self.swap_out(kv, room)) {
            None => {
                self.store.drop_sequence(self.model.arena(), kv);
                sequence.give_up_rows();
            }
            Some(Ok(swapped)) => sequence.rows = Rows::Swapped(Arc::new(swapped)),
            Some(Err(error)) => {
                sequence.rows = Rows::None;
                return self.end(sequence, Event::Failed(EngineError::Backend(error)));
            }
        }
        self.counts.preemptions += 1;
        self.waiting.push_front(sequence);
    }

    /// A running sequence has no room for its next token.
    fn exhausted(&mut self, index: usize, error: StoreError) {
        let mut sequence = self.running.remove(index);
        let event = match sequence.generated() {
            0 => Event::Failed(EngineError::Kv(error)),
            _ => Event::Finished(sequence.exhausted()),
        };
        self.end(sequence, event);
    }

    /// The conversation that has been idle for longest gives its cells, of those whose rows can be computed again or have room
    /// elsewhere. Tells whether there was one.
    fn release_idle(&mut self) -> bool {
        self.idle().into_iter().any(|id| self.release(id))
    }

    /// The conversation that has been idle for longest gives its cells and is to be computed again. Tells whether there was one.
    fn forget_idle(&mut self) -> bool {
        let Some(&id) = self.idle().first() else { return false };
        self.forget(id);
        true
    }

    /// Conversations that nobody uses and that have cells, those idle for longest first.
    pub(super) fn idle(&self) -> Vec<SessionId> {
        let idle = self.sessions.iter().filter(|(_, session)| matches!(session.rows, Rows::Cached(_)));
        let mut idle: Vec<_> = idle.map(|(&id, session)| (session.used, id)).collect();
        idle.sort_unstable();
        idle.into_iter().map(|(_, id)| id).collect()
    }

    /// An idle conversation gives its cells, if it loses nothing by that. Tells whether it did.
    pub(super) fn release(&mut self, id: SessionId) -> bool {
        let Rows::Cached(kv) = self.sessions[&id].rows else { return false };
        if !self.store.is_shifted(kv) {
            self.forget(id);
            return true;
        }
        let Some(room) = self.host_room(kv) else { return false };
        // Rows that cannot be read are to be computed again.
        let swapped = self.swap_out(kv, room);
        let rows = swapped.map_or(Rows::None, |swapped| Rows::Swapped(Arc::new(swapped)));
        self.sessions.get_mut(&id).expect("a conversation").rows = rows;
        true
    }

    /// An idle conversation gives its cells; its rows are to be computed again.
    fn forget(&mut self, id: SessionId) {
        let session = self.sessions.get_mut(&id).expect("a conversation");
        if let Rows::Cached(kv) = std::mem::take(&mut session.rows) {
            self.store.drop_sequence(self.model.arena(), kv);
        }
    }

    /// Leased memory of the host for a sequence's rows, where there is any.
    fn host_room(&self, kv: SequenceId) -> Option<HostRoom> {
        let places = session::places(&self.store, kv);
        let pieces = session::pieces(self.model.kv_spec(), &places);
        self.host.room(pieces.map(|(_, bytes)| bytes as u64).sum())
    }

    /// Copies a sequence's rows to the host's memory and drops it from the store, also where the rows cannot be read.
    fn swap_out(&mut self, kv: SequenceId, mut room: HostRoom) -> Result<Swapped, BackendError> {
        let (shape, places) = (self.store.shape(kv), session::places(&self.store, kv));
        let arena = self.model.arena();
        let bytes = &mut room.bytes;
        let read = session::pieces(&arena.spec().clone(), &places).try_for_each(|(rows, count)| {
            let start = bytes.len();
            bytes.resize(start + count, 0);
            arena.read_rows(&rows, &mut bytes[start..])
        });
        self.store.drop_sequence(arena, kv);
        room.filled();
        read?;
        self.counts.swaps += 1;
        Ok(Swapped { shape, rows: room })
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
        let mut rest = swapped.rows.bytes.as_slice();
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

    /// Brings swapped rows back for a request, even where that leaves no place for those of an idle conversation.
    pub(super) fn recall(&mut self, swapped: &Swapped, salt: Option<u64>) -> Result<SequenceId, EngineError> {
        loop {
            match self.swap_in(swapped, salt) {
                Err(EngineError::Kv(_)) if self.forget_idle() => {}
                recalled => return recalled,
            }
        }
    }

    /// Makes room for a sequence whose rows come from elsewhere; idle conversations give theirs for it.
    pub(super) fn restore(&mut self, shape: &Shape, salt: Option<u64>) -> Result<SequenceId, StoreError> {
        loop {
            match self.store.restore(self.model.arena(), shape.clone(), salt) {
                Err(StoreError::NoBlocks { .. } | StoreError::Refused { .. }) if self.release_idle() => {}
                restored => return restored,
            }
        }
    }
}
