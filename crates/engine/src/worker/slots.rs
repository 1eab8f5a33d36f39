//! Slots: which conversation last ran in each place, so that its rows can be saved, restored and
//! erased. A slot holds no rows itself: they are in the prefix cache, for as long as they stay there.

use std::sync::mpsc::Receiver;

use super::Worker;
use super::transfers::Outgoing;
use crate::RequestId;
use crate::kv::SequenceId;
use crate::kv::session::{RowSource, SavedSequence, SessionError};
use crate::sequence::Sequence;
use crate::session::RowStorage;
use crate::slot::{SlotInfo, SlotTag};

/// A place for a running request.
#[derive(Debug, Clone, Default)]
pub(super) struct Slot {
    user: Option<RequestId>,
    /// Tokens of the last request that were fed.
    tokens: Vec<u32>,
    /// Those of them that were its prompt.
    prompt: usize,
    salt: Option<u64>,
    /// When it was last taken, counted in uses; 0 while it is new.
    used: u64,
}

impl Slot {
    /// How well a request that begins with `tokens` goes on in it: best is its own conversation,
    /// then a slot without one, then the one that was used longest ago.
    fn rank(&self, tokens: &[u32], salt: Option<u64>) -> (bool, bool, u64) {
        let prompt = &self.tokens[..self.prompt];
        let own = !prompt.is_empty() && self.salt == salt && tokens.starts_with(prompt);
        (!own, !self.tokens.is_empty(), self.used)
    }
}

impl Worker {
    /// Gives a request that starts to run a slot.
    pub(super) fn take_slot(&mut self, sequence: &mut Sequence) {
        self.slot_uses += 1;
        let (tokens, salt) = (sequence.tokens(), sequence.salt);
        let free = self.slots.iter().enumerate().filter(|(_, slot)| slot.user.is_none());
        let Some((index, _)) = free.min_by_key(|(_, slot)| slot.rank(tokens, salt)) else { return };
        self.slots[index].user = Some(sequence.id());
        self.slots[index].used = self.slot_uses;
        sequence.slot = Some(index);
    }

    /// A request does not run any more. Where it has left rows in the prefix cache, its slot knows
    /// the tokens.
    pub(super) fn leave_slot(&mut self, sequence: &mut Sequence, ended: bool) {
        let Some(slot) = sequence.slot.take().and_then(|index| self.slots.get_mut(index)) else { return };
        slot.user = None;
        let cached = match sequence.rows {
            RowStorage::Cached(kv) if !self.store.is_shifted(kv) => self.store.tokens(kv),
            _ => &[],
        };
        if ended && sequence.reuse && sequence.session.is_none() && !cached.is_empty() {
            slot.tokens = cached.to_vec();
            slot.prompt = sequence.prompt_len().min(cached.len());
            slot.salt = sequence.salt;
        }
    }

    pub(crate) fn slot_infos(&self) -> Vec<SlotInfo> {
        let info = |(index, slot): (usize, &Slot)| {
            let sequence = slot.user.and_then(|id| self.running.iter().find(|sequence| sequence.id() == id));
            SlotInfo {
                slot: index,
                is_running: sequence.is_some(),
                tokens: sequence.map_or(slot.tokens.len(), |sequence| sequence.tokens().len()) as u32,
                generated: sequence.map_or(0, Sequence::generated) as u32,
            }
        };
        self.slots.iter().enumerate().map(info).collect()
    }

    /// Starts to copy out the rows of a slot, or of all: those of running requests as far as they
    /// are.
    ///
    /// # Errors
    /// There is no such slot.
    pub(crate) fn send_slots(&mut self, only: Option<usize>) -> Result<Outgoing, SessionError> {
        let slots = match only {
            Some(slot) if slot >= self.slots.len() => return Err(SessionError::NoSession),
            Some(slot) => slot..slot + 1,
            None => 0..self.slots.len(),
        };
        let pinned: Vec<(usize, SequenceId)> =
            slots.filter_map(|slot| Some((slot, self.pin_slot(slot)?))).collect();
        let tokens = |kv: SequenceId| self.store.tokens(kv);
        // Of two conversations the longer one has the rows of both.
        let (mut kept, mut dropped): (Vec<_>, Vec<_>) = (Vec::new(), Vec::new());
        for (index, &(slot, kv)) in pinned.iter().enumerate() {
            let salt = self.slots[slot].salt;
            let covers = |(other, &(other_slot, other_kv)): (usize, &(usize, SequenceId))| {
                let longer = (tokens(other_kv).len(), other) > (tokens(kv).len(), index);
                other != index
                    && longer
                    && self.slots[other_slot].salt == salt
                    && tokens(other_kv).starts_with(tokens(kv))
            };
            match tokens(kv).is_empty() || pinned.iter().enumerate().any(covers) {
                true => dropped.push(kv),
                false => kept.push((slot, kv)),
            }
        }
        let saved = kept.iter().map(|&(slot, kv)| {
            let tag = SlotTag { slot: slot as u32, salt: self.store.salt(kv) };
            let tokens = self.store.tokens(kv).to_vec();
            RowSource::of(&self.store, kv, tokens, Vec::new(), tag.to_bytes()).saved
        });
        let saved = saved.collect();
        for kv in dropped {
            self.store.drop_sequence(self.model.arena(), kv);
        }
        Ok(self.send_rows(kept.into_iter().map(|(_, kv)| kv).collect(), saved))
    }

    /// The rows of a slot, kept where they are.
    fn pin_slot(&mut self, slot: usize) -> Option<SequenceId> {
        let Slot { user, tokens, salt, .. } = &self.slots[slot];
        let running = user.and_then(|id| self.running.iter().find(|sequence| sequence.id() == id));
        match running {
            Some(sequence) if self.store.is_shifted(sequence.kv()) || !sequence.reuse => None,
            Some(sequence) => Some(self.store.fork(sequence.kv())),
            None if tokens.is_empty() => None,
            None => Some(self.store.pin(tokens, *salt)),
        }
    }

    /// Starts to fill the prefix cache with rows of a file, for the slot that they were saved from
    /// or for `slot`. `done` learns the end of it.
    pub(crate) fn receive_slot(
        &mut self,
        slot: Option<usize>,
        saved: &SavedSequence,
        rows: Receiver<Vec<u8>>,
        done: impl FnOnce(Result<(), SessionError>) + Send + 'static,
    ) {
        let tag = SlotTag::from_bytes(&saved.host);
        let prepared = tag.and_then(|tag| {
            let slot = slot.unwrap_or(tag.slot as usize);
            if self.slots.get(slot).is_some_and(|slot| slot.user.is_some()) {
                return Err(SessionError::Busy);
            }
            Ok((slot, tag.salt, self.restore(&saved.layout(), tag.salt)?))
        });
        let (slot, salt, sequence) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => return done(Err(error)),
        };
        self.receive_rows(sequence, rows, move |worker, arrived| {
            if let Ok(kv) = arrived {
                worker.slot_uses += 1;
                let (tokens, used) = (worker.store.tokens(kv).to_vec(), worker.slot_uses);
                if let Some(slot) = worker.slots.get_mut(slot).filter(|slot| slot.user.is_none()) {
                    *slot = Slot { user: None, prompt: tokens.len(), tokens, salt, used };
                }
                worker.store.drop_sequence(worker.model.arena(), kv);
            }
            done(arrived.map(drop));
        });
    }

    /// Forgets the conversation of a slot and frees its cached blocks, but for those of a beginning
    /// that another slot's conversation has too. Returns its tokens.
    ///
    /// # Errors
    /// There is no such slot, or a request runs in it.
    pub(crate) fn erase_slot(&mut self, slot: usize) -> Result<u32, SessionError> {
        let erased = self.slots.get_mut(slot).ok_or(SessionError::NoSession)?;
        if erased.user.is_some() {
            return Err(SessionError::Busy);
        }
        let Slot { tokens, salt, .. } = std::mem::take(erased);
        let alike = self.slots.iter().filter(|other| other.salt == salt);
        let shared = |other: &Slot| other.tokens.iter().zip(&tokens).take_while(|(a, b)| a == b).count();
        let kept = alike.map(shared).max().unwrap_or(0) as u32;
        self.store.forget_prefix(self.model.arena(), &tokens, kept, salt);
        self.fragmented = true;
        self.settle();
        Ok(tokens.len() as u32)
    }
}
