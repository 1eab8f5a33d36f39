//! From the queue among the running: what rows a request finds, and whether it should wait for those of another.

use std::sync::Arc;

use super::Worker;
use crate::EngineError;
use crate::event::Event;
use crate::history::tokens_left;
use crate::kv::{Demand, Droppable, SequenceId};
use crate::sequence::Sequence;
use crate::session::{Rows, SessionId};

/// Equal first tokens that are worth waiting for until another sequence has computed them.
const WORTH_WAITING: usize = 32;

/// What a request goes on with of its conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Resumption {
    /// Tokens of the prompt that the conversation has been fed.
    shared: u32,
    /// Those of them that it has forgotten, and that stay forgotten.
    removed: u32,
    /// Rows that are there; those of the other shared tokens are computed again.
    kept: u32,
    /// Tokens that may follow the prompt, where the context's end ends the generation.
    room: Option<usize>,
}

impl Worker {
    /// Admits waiting requests in order while there are slots and memory for them.
    pub(super) fn admit(&mut self) {
        while self.running.len() < self.limits.slots {
            let Some(index) = (0..self.waiting.len()).find(|&index| self.is_ready(&self.waiting[index]))
            else {
                return;
            };
            // Whoever runs alone has all there is.
            if !self.running.is_empty() && !self.make_room_for(index) {
                return;
            }
            let sequence = self.waiting.remove(index).expect("an index into the queue");
            if !self.begin(sequence) {
                return;
            }
        }
    }

    /// Whether nothing that a request waits for is still to come: rows of its prompt that another one computes now, or the end of
    /// its conversation's request before.
    fn is_ready(&self, sequence: &Sequence) -> bool {
        let session = sequence.session.and_then(|id| self.sessions.get(&id));
        let user = session.and_then(|session| session.user);
        let shares = self.store.keeps_prefixes();
        user.is_none_or(|user| user == sequence.id())
            && !(shares && self.running.iter().any(|other| computes_for(other, sequence)))
    }

    /// Whether there is room for a waiting request beside the running ones. Idle conversations give theirs for it, if that helps
    /// and they lose nothing by it: those first whose rows can be computed again.
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
        victims.into_iter().any(|id| self.release(id) && self.fits(index, &[]))
    }

    /// Whether there is room for all tokens of a waiting request beside what the running ones still need, were these conversations'
    /// rows gone.
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

    /// Blocks that a waiting request takes when it begins and for all of its known tokens; none where it will be refused.
    fn demand(&self, waiting: &Sequence, droppable: &Droppable) -> Option<Demand> {
        let length = |removed: u32| (waiting.tokens().len() as u32 - removed).min(self.most_rows());
        let new = |left: &[u32]| {
            let known = if waiting.reuse { left } else { &[] };
            self.store.demand_of_new(known, left.len() as u32, waiting.salt, droppable)
        };
        if let Rows::Swapped(swapped) = &waiting.rows {
            let length = length(waiting.history.removed_tokens());
            return Some(self.store.demand_of_shape(&swapped.shape, length));
        }
        let Some(id) = waiting.session.filter(|_| !waiting.was_admitted()) else {
            return Some(new(&waiting.history.left()));
        };
        let resumption = self.resumption(id, waiting).ok()?;
        let session = &self.sessions[&id];
        let length = length(resumption.removed);
        match &session.rows {
            Rows::Cached(kv) if resumption.kept > 0 => {
                Some(self.store.demand_of_growth(*kv, resumption.kept, length))
            }
            Rows::Swapped(swapped) if resumption.kept > 0 => {
                Some(self.store.demand_of_shape(&swapped.shape, length))
            }
            _ if resumption.removed > 0 => {
                Some(new(&tokens_left(waiting.tokens(), session.history.removed())))
            }
            _ => Some(new(waiting.tokens())),
        }
    }

    /// Rows of a request's conversation that are dropped when it begins.
    fn replaced_rows(&self, waiting: &Sequence) -> Option<SequenceId> {
        let id = waiting.session.filter(|_| !waiting.was_admitted())?;
        let resumption = self.resumption(id, waiting).ok()?;
        self.cached_rows(id).filter(|_| resumption.kept == 0)
    }

    /// The rows of a conversation that nobody uses.
    fn cached_rows(&self, id: SessionId) -> Option<SequenceId> {
        match self.sessions.get(&id)?.rows {
            Rows::Cached(kv) => Some(kv),
            _ => None,
        }
    }

    /// A request takes part in steps from now on, with whatever rows it finds. Tells whether it does or has ended: where there is no
    /// room for rows that are to come back it waits for those that run.
    fn begin(&mut self, mut sequence: Sequence) -> bool {
        // A request that was preempted has its conversation's tokens and rows, or what is left of them.
        let started = match sequence.session {
            Some(id) if !sequence.was_admitted() => self.resume_session(id, &mut sequence),
            _ => self.start(&mut sequence),
        };
        match started {
            Ok(()) => self.running.push(sequence),
            Err(EngineError::Kv(_)) if !self.running.is_empty() => {
                self.waiting.push_front(sequence);
                return false;
            }
            Err(error) => self.end(sequence, Event::Failed(error)),
        }
        true
    }

    /// Brings swapped rows back, or finds those of equal tokens.
    pub(super) fn start(&mut self, sequence: &mut Sequence) -> Result<(), EngineError> {
        if let Rows::Swapped(swapped) = &sequence.rows {
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

    /// Goes on with a conversation: its rows up to where the prompt parts from it. The conversation is as it was where that fails.
    fn resume_session(&mut self, id: SessionId, sequence: &mut Sequence) -> Result<(), EngineError> {
        let Resumption { shared, removed, kept, room } = self.resumption(id, sequence)?;
        if let Rows::Swapped(swapped) = &self.sessions[&id].rows
            && kept > 0
        {
            let swapped = Arc::clone(swapped);
            let kv = self.recall(&swapped, sequence.salt)?;
            self.sessions.get_mut(&id).expect("a conversation").rows = Rows::Cached(kv);
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
            Rows::Cached(kv) if kept > 0 => {
                let cut = self.store.truncate(self.model.arena(), kv, kept);
                cut.expect("rows that can be cut");
                self.counts.reused_tokens += u64::from(kept);
                sequence.admit(kv, kept);
                return Ok(());
            }
            Rows::Cached(kv) => self.store.drop_sequence(self.model.arena(), kv),
            _ => (),
        }
        self.start(sequence)
    }

    /// What a request would go on with of a conversation. Where a window has given rows back that the next token would see, all is
    /// computed again: the whole prompt if the context has room for it, else what the conversation has not forgotten.
    ///
    /// # Errors
    /// There is no such conversation, it has another salt, or what is new has no room in the context.
    fn resumption(&self, id: SessionId, sequence: &Sequence) -> Result<Resumption, EngineError> {
        let session = self.sessions.get(&id).ok_or(EngineError::NoSession)?;
        if session.salt != sequence.salt {
            return Err(EngineError::OtherSalt);
        }
        let shared = session.history.shared_with(sequence.tokens(), session.fed);
        let removed = if shared > 0 { session.history.removed_tokens() } else { 0 };
        let rows = shared - removed;
        let kept = match &session.rows {
            Rows::Cached(kv) => {
                let kept = rows.min(self.store.length(*kv));
                if self.store.can_truncate(*kv, kept) { kept } else { 0 }
            }
            Rows::Swapped(swapped) if self.store.can_truncate_shape(&swapped.shape, rows) => rows,
            _ => 0,
        };
        let whole = kept == 0 && removed > 0 && sequence.tokens().len() < self.most_rows() as usize;
        let (shared, removed) = if whole { (0, 0) } else { (shared, removed) };
        let room = self.room_for(sequence, shared, removed)?;
        Ok(Resumption { shared, removed, kept, room })
    }

    /// How much room the context has for the answer, if that bounds it.
    ///
    /// # Errors
    /// What is new of the prompt has none.
    fn room_for(&self, sequence: &Sequence, shared: u32, removed: u32) -> Result<Option<usize>, EngineError> {
        let n_ctx = self.most_rows() as usize;
        let n_prompt_tokens = sequence.tokens().len() - removed as usize;
        let n_new_tokens = sequence.tokens().len() - shared as usize;
        let used = match sequence.context_shift {
            // Kept tokens that are new are among the new ones.
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
