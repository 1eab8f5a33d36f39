//! Preemption, swapping and context shift: what frees KV blocks when a step needs them.
//!
//! In this order: evict idle conversations, preempt the youngest sequence, shift the context, end
//! with `length`.

use std::ops::Range;
use std::sync::Arc;

use minfer_graph::BackendError;

use super::Worker;
use crate::EngineError;
use crate::event::Event;
use crate::host::SwapSpace;
use crate::kv::{SequenceId, SequenceLayout, StoreError, session};
use crate::session::{RowStorage, SessionId, Swapped};

/// Whether a sequence got cells for the step.
pub(super) enum Cells {
    /// It has its cells.
    Prepared,
    /// No free blocks and nothing to preempt; the sequence is retried in the next step.
    OutOfBlocks(StoreError),
    /// It was preempted or ended, or its rows are recomputed first.
    Skipped,
}

/// The result of a context shift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shift {
    /// Nothing can be removed.
    Impossible,
    /// The remaining rows stay where they are.
    Moved,
    /// The remaining rows are recomputed.
    Restarted,
}

impl Worker {
    /// Positions that a sequence may have in the cache.
    pub(super) fn most_rows(&self) -> u32 {
        u32::try_from(self.store.capacity()).unwrap_or(u32::MAX).min(self.n_ctx)
    }

    /// Takes cells for a running sequence. If there are no blocks, evicts idle conversations, then
    /// preempts the youngest sequences; a sequence that runs alone shifts its context or ends.
    pub(super) fn prepare(&mut self, mut index: usize, tokens: u32) -> Cells {
        if !self.shift_if_full(index) {
            return Cells::Skipped;
        }
        loop {
            let sequence = &self.running[index];
            let fed = &sequence.tokens()[sequence.fed..][..tokens as usize];
            let Err(error) = self.store.prepare(self.model.arena(), sequence.kv(), fed) else {
                return Cells::Prepared;
            };
            if self.evict_idle() {
                continue;
            }
            if self.running.len() == 1 {
                if self.drop_idle() {
                    continue;
                }
                match self.shift(index, 0) {
                    Shift::Moved => continue,
                    Shift::Restarted => return Cells::Skipped,
                    Shift::Impossible => self.exhausted(index, error),
                }
                return Cells::Skipped;
            }
            let Some((victim, room)) = self.victim(index) else { return Cells::OutOfBlocks(error) };
            self.preempt(victim, room);
            if victim == index {
                return Cells::Skipped;
            }
            index -= usize::from(victim < index);
        }
    }

    /// No running sequence could get cells, and host memory has no room to swap out. Drops the rows
    /// of an idle conversation; else shifts the context of the younger sequences, the youngest
    /// first, until a block is free; else ends the youngest. The oldest sequence is never touched.
    pub(super) fn unblock(&mut self, error: StoreError) {
        if self.drop_idle() {
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

    /// Shifts the context of a sequence whose known tokens would exceed it, independent of how many
    /// of them a step feeds. Returns whether the tokens that were chosen for the step can be fed.
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

    /// Removes the oldest half of the rows behind the kept tokens, and at least `least` of them.
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

    /// Removes the rows of `range` from a running sequence and recomputes the others: the next
    /// token's window would reach back over the range to rows that were released.
    fn restart_without(&mut self, index: usize, range: Range<u32>) {
        let mut sequence = self.running.remove(index);
        self.store.drop_sequence(self.model.arena(), sequence.kv());
        sequence.history.remove(range);
        sequence.give_up_rows();
        self.start(&mut sequence).expect("nothing has to come back");
        self.running.insert(index, sequence);
    }

    /// Which sequence is preempted for the one at `index`: the youngest that can be recomputed;
    /// else the youngest without cells of this step that can be swapped out. The oldest sequence is
    /// never preempted.
    fn victim(&self, index: usize) -> Option<(usize, Option<SwapSpace>)> {
        let recomputable = |other: &usize| !self.store.is_shifted(self.running[*other].kv());
        if let Some(victim) = (1..self.running.len()).rev().find(recomputable) {
            return Some((victim, None));
        }
        let room = |other: usize| Some((other, Some(self.swap_space(self.running[other].kv())?)));
        (index.max(1)..self.running.len()).rev().find_map(room)
    }

    /// Frees a running sequence's blocks and puts it at the front of the queue. Its rows are
    /// swapped out to `room`, or recomputed later.
    pub(super) fn preempt(&mut self, index: usize, room: Option<SwapSpace>) {
        let mut sequence = self.running.remove(index);
        let kv = sequence.kv();
        self.leave_slot(&mut sequence, false);
        match room.map(|room| self.swap_out(kv, room)) {
            None => {
                self.store.drop_sequence(self.model.arena(), kv);
                sequence.give_up_rows();
            }
            Some(Ok(swapped)) => sequence.rows = RowStorage::Swapped(Arc::new(swapped)),
            Some(Err(error)) => {
                sequence.rows = RowStorage::None;
                return self.end(sequence, Event::Failed(EngineError::Backend(error)));
            }
        }
        self.counts.preemptions += 1;
        self.waiting.push_front(sequence);
    }

    /// Ends a running sequence that has no cell for its next token.
    fn exhausted(&mut self, index: usize, error: StoreError) {
        let mut sequence = self.running.remove(index);
        let event = match sequence.generated() {
            0 => Event::Failed(EngineError::Kv(error)),
            _ => Event::Finished(sequence.exhausted()),
        };
        self.end(sequence, event);
    }

    /// Evicts the conversation that has been idle for longest, of those that can be recomputed or
    /// swapped out, or gives up rows on their way. Returns whether there was one.
    fn evict_idle(&mut self) -> bool {
        self.idle().into_iter().any(|id| self.evict_session(id)) || self.abandon_transfers()
    }

    /// Drops the rows of the conversation that has been idle for longest, or those on their way.
    /// Returns whether there was one.
    fn drop_idle(&mut self) -> bool {
        let Some(&id) = self.idle().first() else { return self.abandon_transfers() };
        self.drop_session_rows(id);
        true
    }

    /// Idle conversations with cached rows, the longest idle first.
    pub(super) fn idle(&self) -> Vec<SessionId> {
        let idle = self.sessions.iter().filter(|(_, session)| matches!(session.rows, RowStorage::Cached(_)));
        let mut idle: Vec<_> = idle.map(|(&id, session)| (session.used, id)).collect();
        idle.sort_unstable();
        idle.into_iter().map(|(_, id)| id).collect()
    }

    /// Drops or swaps out the rows of an idle conversation. Returns false if they can be neither
    /// recomputed nor swapped out.
    pub(super) fn evict_session(&mut self, id: SessionId) -> bool {
        let RowStorage::Cached(kv) = self.sessions[&id].rows else { return false };
        if !self.store.is_shifted(kv) {
            self.drop_session_rows(id);
            return true;
        }
        let Some(room) = self.swap_space(kv) else { return false };
        // Rows that cannot be read are recomputed.
        let swapped = self.swap_out(kv, room);
        let rows = swapped.map_or(RowStorage::None, |swapped| RowStorage::Swapped(Arc::new(swapped)));
        self.sessions.get_mut(&id).expect("a conversation").rows = rows;
        true
    }

    /// Drops the rows of an idle conversation; they are recomputed when it is used.
    fn drop_session_rows(&mut self, id: SessionId) {
        let session = self.sessions.get_mut(&id).expect("a conversation");
        if let RowStorage::Cached(kv) = std::mem::take(&mut session.rows) {
            self.store.drop_sequence(self.model.arena(), kv);
        }
    }

    /// Leased host memory for a sequence's rows, or `None`.
    fn swap_space(&self, kv: SequenceId) -> Option<SwapSpace> {
        let places = session::places(&self.store, kv);
        let pieces = session::pieces(self.model.kv_spec(), &places);
        self.host.reserve(pieces.map(|(_, bytes)| bytes as u64).sum())
    }

    /// Copies a sequence's rows to host memory and drops the sequence from the store, also when
    /// reading fails.
    fn swap_out(&mut self, kv: SequenceId, mut room: SwapSpace) -> Result<Swapped, BackendError> {
        let (layout, places) = (self.store.layout(kv), session::places(&self.store, kv));
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
        Ok(Swapped { layout, rows: room })
    }

    /// Copies swapped-out rows back to the cache.
    pub(super) fn swap_in(
        &mut self,
        swapped: &Swapped,
        salt: Option<u64>,
    ) -> Result<SequenceId, EngineError> {
        let kv = self.restore(&swapped.layout, salt)?;
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

    /// As [`swap_in`](Self::swap_in) for a request: drops rows of idle conversations if there are
    /// no blocks.
    pub(super) fn recall(&mut self, swapped: &Swapped, salt: Option<u64>) -> Result<SequenceId, EngineError> {
        loop {
            match self.swap_in(swapped, salt) {
                Err(EngineError::Kv(_)) if self.drop_idle() => {}
                recalled => return recalled,
            }
        }
    }

    /// Takes cells for a sequence whose rows come from host memory or a file. Evicts idle
    /// conversations if there are no blocks.
    pub(super) fn restore(
        &mut self,
        layout: &SequenceLayout,
        salt: Option<u64>,
    ) -> Result<SequenceId, StoreError> {
        loop {
            match self.store.restore(self.model.arena(), layout.clone(), salt) {
                Err(StoreError::NoBlocks { .. } | StoreError::Refused { .. }) if self.evict_idle() => {}
                restored => return restored,
            }
        }
    }
}
