//! Conversations and slots: opened, saved and loaded while steps go on.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, sync_channel};

use super::{Command, Engine, Incoming};
use crate::SubmitError;
use crate::kv::session::{self, SavedSequence, SessionError, SessionRows};
use crate::session::{SessionId, SessionInfo};
use crate::slot::{SlotInfo, SlotTransfer};
use crate::worker::transfers::{CHUNK, CHUNKS, Outgoing};

impl Engine {
    /// A conversation without tokens, for requests to go on with.
    ///
    /// # Errors
    /// The engine has stopped.
    pub fn open_session(&self) -> Result<SessionId, SubmitError> {
        self.open_session_for(None)
    }

    /// As [`open_session`](Self::open_session), for requests of this salt: one of another salt, or
    /// of none, fails with [`EngineError::OtherSalt`](crate::EngineError::OtherSalt).
    ///
    /// # Errors
    /// The engine has stopped.
    pub fn open_session_for(&self, salt: Option<u64>) -> Result<SessionId, SubmitError> {
        let id = self.new_session();
        self.send(Command::OpenSession(id, salt))?;
        Ok(id)
    }

    /// Drops a conversation and its KV rows.
    pub fn close_session(&self, id: SessionId) {
        // A worker that has ended keeps none.
        let _ = self.send(Command::CloseSession(id));
    }

    /// What is known of a conversation, between two steps; `None` where there is none.
    pub fn session(&self, id: SessionId) -> Option<SessionInfo> {
        self.ask(|answer| Command::SessionInfo(id, answer)).ok().flatten()
    }

    /// Writes a conversation that no request uses to a file, with bytes of the caller's own;
    /// returns the file's length. The file appears whole or not at all. It is written by this
    /// thread, while steps go on; the rows are those of now, whatever requests do meanwhile.
    ///
    /// # Errors
    /// It is in use, its rows cannot be brought back to the cache or had to leave it, or the file
    /// cannot be written.
    pub fn save_session(&self, id: SessionId, path: &Path, host: Vec<u8>) -> Result<u64, SessionError> {
        session::check_target(path)?;
        let outgoing = self.ask(|answer| Command::SendSession(id, host, answer));
        self.write(path, outgoing.map_err(|_| SessionError::Stopped)??)
    }

    /// Opens a conversation from a file, with the caller's own bytes from it. The file is read and
    /// checked on this thread; its rows are copied to the cache between steps.
    ///
    /// # Errors
    /// The file is not sound or not of this model, template and KV format, or there is no room for
    /// its rows. Nothing has changed then.
    pub fn load_session(&self, path: &Path) -> Result<(SessionId, Vec<u8>), SessionError> {
        self.load_session_for(path, None)
    }

    /// As [`load_session`](Self::load_session), for requests of this salt: files know of none.
    ///
    /// # Errors
    /// As there.
    pub fn load_session_for(
        &self,
        path: &Path,
        salt: Option<u64>,
    ) -> Result<(SessionId, Vec<u8>), SessionError> {
        let file = self.session_terms.open(path)?;
        let id = self.new_session();
        self.receive(&file, 0, |incoming| Command::ReceiveSession(id, salt, incoming))?;
        Ok((id, file.sequences()[0].host.clone()))
    }

    /// What is known of every slot, between two steps.
    ///
    /// # Errors
    /// The engine has stopped.
    pub fn slots(&self) -> Result<Vec<SlotInfo>, SubmitError> {
        self.ask(Command::SlotInfos)
    }

    /// Writes the conversations that last ran in the slots, or in `only` one, to a file with those
    /// of their rows that are cached. Running requests go on, and are saved as far as they are.
    ///
    /// # Errors
    /// There is no such slot, the rows had to leave the cache, or the file cannot be written.
    pub fn save_slots(&self, only: Option<usize>, path: &Path) -> Result<SlotTransfer, SessionError> {
        session::check_target(path)?;
        let outgoing = self.ask(|answer| Command::SendSlots(only, answer));
        let outgoing = outgoing.map_err(|_| SessionError::Stopped)??;
        let saved = transfer(&outgoing.saved);
        Ok(SlotTransfer { bytes: self.write(path, outgoing)?, ..saved })
    }

    /// Brings the rows of a file of slots to the prefix cache: for the slots that they were saved
    /// from, or those of a single conversation for `only` one. Conversations that there is no
    /// memory for are left out.
    ///
    /// # Errors
    /// The file is not sound or not of this model, template and KV format, there is no such slot,
    /// a request runs in it, or there is room for none of the conversations.
    pub fn load_slots(&self, only: Option<usize>, path: &Path) -> Result<SlotTransfer, SessionError> {
        if only.is_some_and(|slot| slot >= self.config.n_slots) {
            return Err(SessionError::NoSession);
        }
        let file = match only {
            Some(_) => self.session_terms.open(path)?,
            None => self.session_terms.open_all(path)?,
        };
        let mut loaded = Vec::new();
        for (index, saved) in file.sequences().iter().enumerate() {
            match self.receive(&file, index, |incoming| Command::ReceiveSlot(only, incoming)) {
                Ok(()) => loaded.push(saved.clone()),
                Err(SessionError::Store(_)) if !loaded.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(SlotTransfer { bytes: file.length(), ..transfer(&loaded) })
    }

    /// Forgets the conversation that last ran in a slot, with its cached rows, but for those of a
    /// beginning that another slot's conversation has too. Returns its tokens.
    ///
    /// # Errors
    /// There is no such slot, or a request runs in it.
    pub fn erase_slot(&self, slot: usize) -> Result<u32, SessionError> {
        self.ask(|answer| Command::EraseSlot(slot, answer)).map_err(|_| SessionError::Stopped)?
    }

    fn new_session(&self) -> SessionId {
        SessionId(self.next_session.fetch_add(1, Ordering::Relaxed))
    }

    /// Writes rows to a file as they come from the worker.
    fn write(&self, path: &Path, outgoing: Outgoing) -> Result<u64, SessionError> {
        let Outgoing { saved, rows } = outgoing;
        let commands = self.commands.as_ref().ok_or(SessionError::Stopped)?;
        let rows = Waking { rows: Some(rows), commands };
        let (identity, spec) = (self.config.identity, &self.session_terms.spec);
        session::write(path, identity, spec, saved, |put| {
            while let Some(bytes) = rows.next() {
                put(&bytes)?;
            }
            Ok(())
        })
    }

    /// Sends the rows of one sequence of a file to the worker and waits for their arrival.
    fn receive(
        &self,
        file: &SessionRows,
        index: usize,
        command: impl FnOnce(Incoming) -> Command,
    ) -> Result<(), SessionError> {
        let stopped = |_| SessionError::Stopped;
        let (sender, rows) = sync_channel(CHUNKS);
        let (done, end) = sync_channel(1);
        let saved = file.sequences()[index].clone();
        self.send(command(Incoming { saved, rows, done })).map_err(stopped)?;
        let sent = file.send_rows(index, &self.session_terms.spec, CHUNK, |bytes| {
            sender.send(bytes).is_ok() && self.send(Command::Wake).is_ok()
        });
        drop(sender);
        // The worker learns that no more will come.
        let _ = self.send(Command::Wake);
        let end = end.recv().map_err(|_| SessionError::Stopped)?;
        sent.and(end)
    }
}

fn transfer(saved: &[SavedSequence]) -> SlotTransfer {
    let tokens = saved.iter().map(|sequence| u64::from(sequence.length)).sum();
    SlotTransfer { slots: saved.len(), tokens, bytes: 0 }
}

/// Rows that a worker sends; it is woken for each that is taken, and when nobody takes more.
struct Waking<'a> {
    rows: Option<Receiver<Vec<u8>>>,
    commands: &'a Sender<Command>,
}

impl Waking<'_> {
    fn next(&self) -> Option<Vec<u8>> {
        let bytes = self.rows.as_ref()?.recv().ok();
        let _ = self.commands.send(Command::Wake);
        bytes
    }
}

impl Drop for Waking<'_> {
    fn drop(&mut self) {
        drop(self.rows.take());
        let _ = self.commands.send(Command::Wake);
    }
}
