//! From the queue among the running: what rows a request finds, and whether it should wait for those of another.

use std::sync::Arc;

use super::Worker;
use crate::EngineError;
use crate::event::Event;
use crate::kv::SequenceId;
use crate::sequence::Sequence;
use crate::session::{Rows, SessionId};

/// Equal first tokens that are worth waiting for until another sequence has computed them.
const WORTH_WAITING: usize = 32;

impl Worker {
    /// Admits waiting requests in order while there are slots and memory for them.
    pub(super) fn admit(&mut self) {
        while self.running.len() < self.limits.slots {
            let Some(index) = (0..self.waiting.len()).find(|&index| self.is_ready(&self.waiting[index]))
            else {
                return;
            };
            if !self.fits(index) && !self.running.is_empty() {
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
        user.is_none_or(|user| user == sequence.id())
            && !self.running.iter().any(|other| computes_for(other, sequence))
    }

    /// Whether there is room for all tokens of a waiting request beside what the running ones still need.
    fn fits(&self, index: usize) -> bool {
        let running = self.running.iter();
        let reserved: Vec<_> = running.map(|sequence| (sequence.kv(), sequence.rows_wanted())).collect();
        let waiting = &self.waiting[index];
        match &waiting.rows {
            Rows::Swapped(swapped) => self.store.has_room_for(&reserved, &swapped.shape),
            _ => self.store.has_room(&reserved, waiting.tokens(), waiting.salt),
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
    fn start(&mut self, sequence: &mut Sequence) -> Result<(), EngineError> {
        if let Rows::Swapped(swapped) = &sequence.rows {
            let kv = self.recall(&Arc::clone(swapped), sequence.salt)?;
            let fed = sequence.fed as u32;
            sequence.admit(kv, fed);
            return Ok(());
        }
        let kv = self.store.create();
        let wanted = if sequence.reuse { sequence.tokens() } else { &[] };
        let fed = self.store.reuse(kv, wanted, sequence.salt);
        self.counts.reused_tokens += u64::from(fed);
        sequence.admit(kv, fed);
        Ok(())
    }

    /// Goes on with a conversation: its rows up to where the prompt parts from it. The conversation is as it was where that fails.
    fn resume_session(&mut self, id: SessionId, sequence: &mut Sequence) -> Result<(), EngineError> {
        let session = self.sessions.get(&id).ok_or(EngineError::NoSession)?;
        if session.salt != sequence.salt {
            return Err(EngineError::OtherSalt);
        }
        let shared = session.history.shared_with(sequence.tokens(), session.fed);
        let removed = if shared > 0 { session.history.removed_tokens() } else { 0 };
        self.check_room(sequence, shared, removed)?;
        if let Rows::Swapped(swapped) = &session.rows
            && shared > 0
        {
            let swapped = Arc::clone(swapped);
            let kv = self.recall(&swapped, sequence.salt)?;
            self.sessions.get_mut(&id).expect("a conversation").rows = Rows::Cached(kv);
        }
        let session = self.sessions.get_mut(&id).expect("a conversation");
        session.user = Some(sequence.id());
        let kept = match std::mem::take(&mut session.rows) {
            Rows::Cached(kv) => self.rewind(kv, shared, removed),
            _ => None,
        };
        let Some(kv) = kept else { return self.start(sequence) };
        let session = self.sessions.get_mut(&id).expect("a conversation");
        sequence.history.adopt(&session.history, shared);
        self.counts.reused_tokens += u64::from(shared - removed);
        sequence.admit(kv, shared);
        Ok(())
    }

    /// Cuts a conversation's rows to those of its first `shared` tokens; drops them where that cannot be done.
    fn rewind(&mut self, kv: SequenceId, shared: u32, removed: u32) -> Option<SequenceId> {
        if shared > 0 && self.store.truncate(self.model.arena(), kv, shared - removed).is_ok() {
            return Some(kv);
        }
        self.store.drop_sequence(self.model.arena(), kv);
        None
    }

    /// Whether what is new of a prompt has room in the context, and how much there is for the answer.
    fn check_room(&self, sequence: &mut Sequence, shared: u32, removed: u32) -> Result<(), EngineError> {
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
        if sequence.context_shift.is_none() {
            sequence.set_room(n_ctx - used);
        }
        Ok(())
    }
}

/// Whether a running sequence is still computing rows that a waiting one could use.
fn computes_for(running: &Sequence, waiting: &Sequence) -> bool {
    let can_share =
        running.reuse && waiting.reuse && running.salt == waiting.salt && waiting.session.is_none();
    if !can_share || !running.is_prefilling() || !running.history.removed().is_empty() {
        return false;
    }
    let most = waiting.tokens().len() - 1;
    let equal = running.tokens().iter().zip(&waiting.tokens()[..most]).take_while(|(a, b)| a == b).count();
    // The last token of a prompt under way is fed with the rest of its rows.
    equal >= WORTH_WAITING && running.fed < equal
}
