//! Sessions of the worker: opened, kept when their request ends, saved and loaded.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use super::Worker;
use super::transfers::Outgoing;
use crate::history::History;
use crate::kv::session::{RowSource, SavedSequence, SessionError};
use crate::sequence::Sequence;
use crate::session::{RowStorage, Session, SessionId, SessionInfo, SessionTerms};

impl Worker {
    /// A conversation without tokens.
    pub(crate) fn open_session(&mut self, id: SessionId, salt: Option<u64>) {
        self.sessions.insert(id, Session { salt, ..Session::default() });
    }

    /// Drops a conversation. Its running request, if any, continues without it.
    pub(crate) fn close_session(&mut self, id: SessionId) {
        if let Some(Session { rows: RowStorage::Cached(kv), .. }) = self.sessions.remove(&id) {
            self.store.drop_sequence(self.model.arena(), kv);
            self.fragmented = true;
        }
        self.settle();
    }

    pub(crate) fn session_info(&self, id: SessionId) -> Option<SessionInfo> {
        let session = self.sessions.get(&id)?;
        let removed = session.history.removed_tokens();
        let rows = match &session.rows {
            RowStorage::Cached(kv) => self.store.length(*kv),
            RowStorage::Swapped(swapped) => swapped.layout.tokens.len() as u32,
            // Its request has them.
            RowStorage::None if session.user.is_some() => (session.fed as u32).saturating_sub(removed),
            RowStorage::None => 0,
        };
        Some(SessionInfo { tokens: session.history.tokens.clone(), rows, removed })
    }

    /// Called when a request ends: its conversation, if still open, keeps the tokens and rows.
    pub(super) fn keep_session(&mut self, sequence: &mut Sequence) {
        let uses = &mut self.session_uses;
        let Some(session) = sequence.session.and_then(|id| self.sessions.get_mut(&id)) else { return };
        if session.user != Some(sequence.id()) {
            return;
        }
        *uses += 1;
        *session = Session {
            history: std::mem::take(&mut sequence.history),
            fed: sequence.fed_once(),
            rows: std::mem::take(&mut sequence.rows),
            salt: session.salt,
            user: None,
            used: *uses,
        };
    }

    /// Starts to copy out the rows of an idle conversation.
    ///
    /// # Errors
    /// It is in use, or its rows cannot be brought back to the cache.
    pub(crate) fn send_session(&mut self, id: SessionId, host: Vec<u8>) -> Result<Outgoing, SessionError> {
        let session = self.idle_session(id)?;
        if let RowStorage::Swapped(swapped) = &session.rows {
            let (swapped, salt) = (Arc::clone(swapped), session.salt);
            let kv =
                self.swap_in(&swapped, salt).map_err(|error| SessionError::NotInCache(error.to_string()))?;
            self.idle_session(id)?.rows = RowStorage::Cached(kv);
        }
        let session = &self.sessions[&id];
        let saved = self.saved(session, host);
        let pinned = match session.rows {
            RowStorage::Cached(kv) => vec![self.store.fork(kv)],
            _ => Vec::new(),
        };
        Ok(self.send_rows(pinned, vec![saved]))
    }

    fn saved(&self, session: &Session, host: Vec<u8>) -> SavedSequence {
        let (tokens, removed) = (session.history.tokens.clone(), session.history.removed().to_vec());
        match session.rows {
            RowStorage::Cached(kv) => RowSource::of(&self.store, kv, tokens, removed, host).saved,
            _ => {
                let runs = vec![Vec::new(); self.store.groups()];
                SavedSequence { tokens, removed, length: 0, runs, host }
            }
        }
    }

    /// What a session file is checked against before its rows are
    /// [received](Self::receive_session).
    pub(crate) fn session_terms(&self) -> SessionTerms {
        let spec = self.model.kv_spec().clone();
        let (vocab, n_ctx) = (self.model.input_vocab(), self.most_rows());
        SessionTerms { identity: self.identity, spec, vocab, n_ctx }
    }

    /// Starts to open a conversation of a verified file. `done` learns the end of it: an error has
    /// changed nothing.
    pub(crate) fn receive_session(
        &mut self,
        id: SessionId,
        saved: SavedSequence,
        salt: Option<u64>,
        rows: Receiver<Vec<u8>>,
        done: impl FnOnce(Result<(), SessionError>) + Send + 'static,
    ) {
        if saved.length == 0 {
            self.take_session(id, saved, salt, RowStorage::None);
            return done(Ok(()));
        }
        match self.restore(&saved.layout(), salt) {
            Ok(kv) => self.receive_rows(kv, rows, move |worker, arrived| {
                if let Ok(kv) = arrived {
                    worker.take_session(id, saved, salt, RowStorage::Cached(kv));
                }
                done(arrived.map(drop));
            }),
            Err(error) => done(Err(error.into())),
        }
    }

    fn take_session(&mut self, id: SessionId, saved: SavedSequence, salt: Option<u64>, rows: RowStorage) {
        // Where not all rows were there, those of the tokens behind the removed ones count as new.
        let removed = saved.removed.last().map_or(0, |range| range.end);
        let history = History::from_parts(saved.tokens, saved.removed);
        let fed = (saved.length + history.removed_tokens()).max(removed) as usize;
        self.session_uses += 1;
        let session = Session { history, fed, rows, salt, user: None, used: self.session_uses };
        self.sessions.insert(id, session);
        self.settle();
    }

    fn idle_session(&mut self, id: SessionId) -> Result<&mut Session, SessionError> {
        let session = self.sessions.get_mut(&id).ok_or(SessionError::NoSession)?;
        if session.user.is_some() { Err(SessionError::Busy) } else { Ok(session) }
    }
}
