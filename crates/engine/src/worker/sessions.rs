//! Sessions of the worker: opened, kept when their request ends, saved and loaded.

use std::path::Path;
use std::sync::Arc;

use super::Worker;
use crate::history::History;
use crate::kv::SequenceId;
use crate::kv::session::{self, RowSource, SavedSequence, SessionError, SessionRows};
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

    /// Writes an idle conversation to a file; returns the file's length.
    pub(crate) fn save_session(
        &mut self,
        id: SessionId,
        path: &Path,
        host: Vec<u8>,
    ) -> Result<u64, SessionError> {
        let session = self.idle_session(id)?;
        if let RowStorage::Swapped(swapped) = &session.rows {
            let (swapped, salt) = (Arc::clone(swapped), session.salt);
            let kv =
                self.swap_in(&swapped, salt).map_err(|error| SessionError::NotInCache(error.to_string()))?;
            self.idle_session(id)?.rows = RowStorage::Cached(kv);
        }
        let session = &self.sessions[&id];
        let source = self.row_source(session, host);
        session::save(path, self.identity, self.model.arena(), &[source])
    }

    fn row_source(&self, session: &Session, host: Vec<u8>) -> RowSource {
        let (tokens, removed) = (session.history.tokens.clone(), session.history.removed().to_vec());
        let RowStorage::Cached(kv) = session.rows else {
            let groups = self.store.groups();
            let (runs, places) = (vec![Vec::new(); groups], vec![Vec::new(); groups]);
            return RowSource { saved: SavedSequence { tokens, removed, length: 0, runs, host }, places };
        };
        RowSource::of(&self.store, kv, tokens, removed, host)
    }

    /// What a session file is checked against before [`take_session`](Self::take_session).
    pub(crate) fn session_terms(&self) -> SessionTerms {
        let spec = self.model.kv_spec().clone();
        let (vocab, n_ctx) = (self.model.input_vocab(), self.most_rows());
        SessionTerms { identity: self.identity, spec, vocab, n_ctx }
    }

    /// Opens a conversation from a verified file; returns the caller's bytes. An error changes
    /// nothing.
    pub(crate) fn take_session(
        &mut self,
        id: SessionId,
        file: &SessionRows,
        salt: Option<u64>,
    ) -> Result<Vec<u8>, SessionError> {
        let saved = &file.sequences()[0];
        let rows = match saved.length {
            0 => RowStorage::None,
            _ => RowStorage::Cached(self.load_rows(file, saved, salt)?),
        };
        let history = History::from_parts(saved.tokens.clone(), saved.removed.clone());
        // Where not all rows were there, those of the tokens behind the removed ones count as new.
        let removed = saved.removed.last().map_or(0, |range| range.end);
        let fed = (saved.length + history.removed_tokens()).max(removed) as usize;
        self.session_uses += 1;
        let session = Session { history, fed, rows, salt, user: None, used: self.session_uses };
        self.sessions.insert(id, session);
        self.settle();
        Ok(saved.host.clone())
    }

    fn load_rows(
        &mut self,
        file: &SessionRows,
        saved: &SavedSequence,
        salt: Option<u64>,
    ) -> Result<SequenceId, SessionError> {
        let kv = self.restore(&saved.layout(), salt)?;
        file.fill(0, &mut self.store, self.model.arena(), kv)?;
        Ok(kv)
    }

    fn idle_session(&mut self, id: SessionId) -> Result<&mut Session, SessionError> {
        let session = self.sessions.get_mut(&id).ok_or(SessionError::NoSession)?;
        if session.user.is_some() { Err(SessionError::Busy) } else { Ok(session) }
    }
}
