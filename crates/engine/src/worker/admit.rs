//! Starting waiting requests: whether there is room, which cached rows they start with, and whether
//! they should wait for rows that another request is computing.

use std::sync::Arc;

use super::Worker;
use crate::EngineError;
use crate::event::Event;
use crate::history::tokens_left;
use crate::kv::{Demand, Droppable, SequenceId};
use crate::sequence::Sequence;
use crate::session::{RowStorage, SessionId};

/// Length of a common prefix from which a request waits until the other sequence has computed it.
const WORTH_WAITING: usize = 32;

/// Which rows of its conversation a request continues with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Resumption {
    /// Tokens of the prompt that the conversation has been fed.
    shared: u32,
    /// Those of them that context shifts have removed, and that stay removed.
    removed: u32,
    /// Rows that are there; those of the other shared tokens are computed again.
    kept: u32,
    /// Tokens that may follow the prompt, where the context's end ends the generation.
    room: Option<usize>,
}

impl Worker {
    /// Starts waiting requests in order while there are slots and KV blocks for them.
    pub(super) fn admit(&mut self) {
        while self.running.len() < self.limits.slots {
            let Some(index) = (0..self.waiting.len()).find(|&index| self.is_ready(&self.waiting[index]))
            else {
                return;
            };
            // A sequence that runs alone may take every block.
            if !self.running.is_empty() && !self.make_room_for(index) {
                return;
            }
            let sequence = self.waiting.remove(index).expect("an index into the queue");
            if !self.begin(sequence) {
                return;
            }
        }
    }

    /// Whether a request need not wait: for rows of its prompt that another sequence is computing,
    /// or for the previous request of its conversation.
    fn is_ready(&self, sequence: &Sequence) -> bool {
        let session = sequence.session.and_then(|id| self.sessions.get(&id));
        let user = session.and_then(|session| session.user);
        let shares = self.store.keeps_prefixes();
        user.is_none_or(|user| user == sequence.id())
            && !(shares && self.running.iter().any(|other| computes_for(other, sequence)))
    }

    /// Whether a waiting request fits beside the running ones. Evicts idle conversations if that
    /// makes it fit and loses no rows for good: first those that can be recomputed, then those that
    /// can be swapped out.
    fn make_room_for(&mut self, index: usize) -> bool {
        if self.fits(index, &[]) {
            return true;
        }
        let own = self.waiting[index].session;
        let idle: Vec<SessionId> = self.idle().into_iter().filter(|&id| Some(id) != own).collect();
        let shifted = |id: &SessionId| self.cached_rows(*id).is_some_and(|kv| self.store.is_shifted(kv));
        let recomputable: Vec<SessionId> = idle.iter().copied().filter(|id| !shifted(id)).collect();
        let Some(victims) = [recomputable, idle].into_iter().find(|ids| self.fits(index, ids)) else {
            return false;
        };
        victims.into_iter().any(|id| self.evict_session(id) && self.fits(index, &[]))
    }

    /// Whether all tokens of a waiting request fit beside what the running ones still need, if the
    /// rows of the conversations `gone` were dropped.
    fn fits(&self, index: usize, gone: &[SessionId]) -> bool {
        let waiting = &self.waiting[index];
        let gone = gone.iter().filter_map(|&id| self.cached_rows(id));
        let droppable = self.store.droppable(gone.chain(self.replaced_rows(waiting)));
        let Some(own) = self.demand(waiting, &droppable) else { return true };
        let most = self.most_rows();
        let grown = self.running.iter().map(|sequence| {
            self.store.demand_of_growth(sequence.kv(), u32::MAX, sequence.rows_wanted().min(most))
        });
        let demands: Vec<Demand> = grown.chain([own]).collect();
        self.store.has_room(&demands, &droppable)
    }

    /// Blocks that a waiting request takes for all of its known tokens. `None` if it will be
    /// refused when it starts.
    fn demand(&self, waiting: &Sequence, droppable: &Droppable) -> Option<Demand> {
        let length = |removed: u32| (waiting.tokens().len() as u32 - removed).min(self.most_rows());
        let new = |left: &[u32]| {
            let known = if waiting.reuse { left } else { &[] };
            self.store.demand_of_new(known, left.len() as u32, waiting.salt, droppable)
        };
        if let RowStorage::Swapped(swapped) = &waiting.rows {
            let length = length(waiting.history.removed_tokens());
            return Some(self.store.demand_of_layout(&swapped.layout, length));
        }
        let Some(id) = waiting.session.filter(|_| !waiting.was_admitted()) else {
            return Some(new(&waiting.history.left()));
        };
        let resumption = self.resumption(id, waiting).ok()?;
        let session = &self.sessions[&id];
        let length = length(resumption.removed);
        match &session.rows {
            RowStorage::Cached(kv) if resumption.kept > 0 => {
                Some(self.store.demand_of_growth(*kv, resumption.kept, length))
            }
            RowStorage::Swapped(swapped) if resumption.kept > 0 => {
                Some(self.store.demand_of_layout(&swapped.layout, length))
            }
            _ if resumption.removed > 0 => {
                Some(new(&tokens_left(waiting.tokens(), session.history.removed())))
            }
            _ => Some(new(waiting.tokens())),
        }
    }

    /// Rows of a request's conversation that are dropped when the request starts.
    fn replaced_rows(&self, waiting: &Sequence) -> Option<SequenceId> {
        let id = waiting.session.filter(|_| !waiting.was_admitted())?;
        let resumption = self.resumption(id, waiting).ok()?;
        self.cached_rows(id).filter(|_| resumption.kept == 0)
    }

    /// The cached rows of an idle conversation.
    fn cached_rows(&self, id: SessionId) -> Option<SequenceId> {
        match self.sessions.get(&id)?.rows {
            RowStorage::Cached(kv) => Some(kv),
            _ => None,
        }
    }

    /// Starts a request with the rows that are cached for it. Returns false if its swapped-out rows
    /// do not fit now: then it waits for running sequences to end.
    fn begin(&mut self, mut sequence: Sequence) -> bool {
        // A preempted request already has the tokens and rows of its conversation.
        let started = match sequence.session {
            Some(id) if !sequence.was_admitted() => self.resume_session(id, &mut sequence),
            _ => self.start(&mut sequence),
        };
        match started {
            Ok(()) => {
                self.take_slot(&mut sequence);
                self.running.push(sequence);
            }
            Err(EngineError::Kv(_)) if !self.running.is_empty() => {
                self.waiting.push_front(sequence);
                return false;
            }
            Err(error) => self.end(sequence, Event::Failed(error)),
        }
        true
    }

    /// Swaps rows in, or looks up the longest cached prefix.
    pub(super) fn start(&mut self, sequence: &mut Sequence) -> Result<(), EngineError> {
        if let RowStorage::Swapped(swapped) = &sequence.rows {
            let kv = self.recall(&Arc::clone(swapped), sequence.salt)?;
            sequence.admit(kv, self.store.length(kv));
            return Ok(());
        }
        let kv = self.store.create();
        let left = sequence.history.left();
        let rows = self.store.reuse(kv, if sequence.reuse { &left } else { &[] }, sequence.salt);
        self.counts.reused_tokens += u64::from(rows);
        sequence.admit(kv, rows);
        Ok(())
    }

    /// Continues a conversation: keeps its rows up to where the prompt differs. An error leaves the
    /// conversation unchanged.
    fn resume_session(&mut self, id: SessionId, sequence: &mut Sequence) -> Result<(), EngineError> {
        let Resumption { shared, removed, kept, room } = self.resumption(id, sequence)?;
        if let RowStorage::Swapped(swapped) = &self.sessions[&id].rows
            && kept > 0
        {
            let swapped = Arc::clone(swapped);
            let kv = self.recall(&swapped, sequence.salt)?;
            self.sessions.get_mut(&id).expect("a conversation").rows = RowStorage::Cached(kv);
        }
        let session = self.sessions.get_mut(&id).expect("a conversation");
        session.user = Some(sequence.id());
        if removed > 0 {
            sequence.history.adopt(&session.history);
        }
        if let Some(most) = room {
            sequence.set_room(most);
        }
        let rows = std::mem::take(&mut session.rows);
        if kept < shared - removed {
            sequence.recompute(shared as usize);
        }
        match rows {
            RowStorage::Cached(kv) if kept > 0 => {
                let cut = self.store.truncate(self.model.arena(), kv, kept);
                cut.expect("rows that can be cut");
                self.counts.reused_tokens += u64::from(kept);
                sequence.admit(kv, kept);
                return Ok(());
            }
            RowStorage::Cached(kv) => self.store.drop_sequence(self.model.arena(), kv),
            _ => (),
        }
        self.start(sequence)
    }

    /// Which rows of a conversation a request would continue with. If a window has released rows
    /// that the next token sees, no row is kept: the whole prompt is recomputed if it fits the
    /// context, else the tokens that context shifts have not removed.
    ///
    /// # Errors
    /// There is no such conversation, it has another salt, or what is new has no room in the
    /// context.
    fn resumption(&self, id: SessionId, sequence: &Sequence) -> Result<Resumption, EngineError> {
        let session = self.sessions.get(&id).ok_or(EngineError::NoSession)?;
        if session.salt != sequence.salt {
            return Err(EngineError::OtherSalt);
        }
        let shared = session.history.shared_with(sequence.tokens(), session.fed);
        let removed = if shared > 0 { session.history.removed_tokens() } else { 0 };
        let rows = shared - removed;
        let kept = match &session.rows {
            RowStorage::Cached(kv) => {
                let kept = rows.min(self.store.length(*kv));
                if self.store.can_truncate(*kv, kept) { kept } else { 0 }
            }
            RowStorage::Swapped(swapped) if self.store.can_truncate_layout(&swapped.layout, rows) => rows,
            _ => 0,
        };
        let whole = kept == 0 && removed > 0 && sequence.tokens().len() < self.most_rows() as usize;
        let (shared, removed) = if whole { (0, 0) } else { (shared, removed) };
        let room = self.room_for(sequence, shared, removed)?;
        Ok(Resumption { shared, removed, kept, room })
    }

    /// Most tokens that may follow the prompt; `None` with a context shift.
    ///
    /// # Errors
    /// The new tokens of the prompt do not fit the context.
    fn room_for(&self, sequence: &Sequence, shared: u32, removed: u32) -> Result<Option<usize>, EngineError> {
        let n_ctx = self.most_rows() as usize;
        let n_prompt_tokens = sequence.tokens().len() - removed as usize;
        let n_new_tokens = sequence.tokens().len() - shared as usize;
        let used = match sequence.context_shift {
            // Kept tokens that are new are already counted.
            Some(shift) => n_new_tokens + shift.keep.min(shared) as usize,
            None => n_prompt_tokens,
        };
        if used >= n_ctx {
            return Err(EngineError::ExceedsContext { n_prompt_tokens, n_new_tokens, n_ctx });
        }
        Ok(sequence.context_shift.is_none().then_some(n_ctx - used))
    }
}

/// Whether a running sequence is still computing rows that a waiting one could use.
fn computes_for(running: &Sequence, waiting: &Sequence) -> bool {
    let can_share =
        running.reuse && waiting.reuse && running.salt == waiting.salt && waiting.session.is_none();
    let whole = |sequence: &Sequence| sequence.history.removed().is_empty();
    if !can_share || !running.is_prefilling() || !whole(running) || !whole(waiting) {
        return false;
    }
    let most = waiting.tokens().len() - 1;
    let equal = running.tokens().iter().zip(&waiting.tokens()[..most]).take_while(|(a, b)| a == b).count();
    // The last token of a prompt under way is fed with the rest of its rows.
    equal >= WORTH_WAITING && running.fed < equal
}
