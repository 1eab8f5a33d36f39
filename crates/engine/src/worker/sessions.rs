//! Conversations that outlive their requests.

use std::path::Path;
use std::sync::Arc;

use super::Worker;
use crate::history::History;
use crate::kv::SequenceId;
use crate::kv::session::{self, RowSource, SavedSequence, SessionError, SessionFile};
use crate::sequence::Sequence;
use crate::session::{Rows, Session, SessionId, SessionInfo};

impl Worker {
    /// A conversation without tokens.
    pub(crate) fn open_session(&mut self, id: SessionId, salt: Option<u64>) {
        self.sessions.insert(id, Session { salt, ..Session::default() });
    }

    /// Forgets a conversation. Its request, if one runs, goes on alone.
    pub(crate) fn close_session(&mut self, id: SessionId) {
        if let Some(Session { rows: Rows::Cached(kv), .. }) = self.sessions.remove(&id) {
            self.store.drop_sequence(self.model.arena(), kv);
            self.untidy = true;
        }
        self.settle();
    }

    pub(crate) fn session_info(&self, id: SessionId) -> Option<SessionInfo> {
        self.sessions.get(&id).map(Session::info)
    }

    /// A request ends: its conversation, where it is still open, keeps its tokens and rows.
    pub(super) fn stash(&mut self, sequence: &mut Sequence) {
        let uses = &mut self.session_uses;
        let Some(session) = sequence.session.and_then(|id| self.sessions.get_mut(&id)) else { return };
        if session.user != Some(sequence.id()) {
            return;
        }
        *uses += 1;
        *session = Session {
            history: std::mem::take(&mut sequence.history),
            fed: sequence.fed,
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
        if let Rows::Swapped(swapped) = &session.rows {
            let (swapped, salt) = (Arc::clone(swapped), session.salt);
            let kv =
                self.swap_in(&swapped, salt).map_err(|error| SessionError::NotInCache(error.to_string()))?;
            self.idle_session(id)?.rows = Rows::Cached(kv);
        }
        let session = &self.sessions[&id];
        let source = self.row_source(session, host);
        session::save(path, self.identity, self.model.arena(), &[source])
    }

    fn row_source(&self, session: &Session, host: Vec<u8>) -> RowSource {
        let (tokens, removed) = (session.history.tokens.clone(), session.history.removed().to_vec());
        let Rows::Cached(kv) = session.rows else {
            let groups = self.store.groups();
            let (runs, places) = (vec![Vec::new(); groups], vec![Vec::new(); groups]);
            return RowSource { saved: SavedSequence { tokens, removed, length: 0, runs, host }, places };
        };
        RowSource::of(&self.store, kv, tokens, removed, host)
    }

    /// Opens a conversation from a file; returns the caller's bytes. Nothing has changed where that fails.
    pub(crate) fn load_session(
        &mut self,
        id: SessionId,
        path: &Path,
        salt: Option<u64>,
    ) -> Result<Vec<u8>, SessionError> {
        let file = SessionFile::open(path)?;
        file.check(self.identity, self.model.kv_spec())?;
        let [saved] = file.sequences() else {
            let text = format!("{} conversations where one is expected", file.sequences().len());
            return Err(SessionError::Contradiction(text));
        };
        let vocab = self.model.input_vocab();
        if let Some(&token) = saved.tokens.iter().find(|&&token| token as usize >= vocab) {
            return Err(SessionError::Contradiction(format!("token {token} of a vocabulary of {vocab}")));
        }
        let (length, n_ctx) = (saved.length, self.most_rows());
        if length > n_ctx {
            return Err(SessionError::TooLong { length, n_ctx });
        }
        let rows = if length > 0 { Rows::Cached(self.load_rows(&file, saved, salt)?) } else { Rows::None };
        let history = History::from_parts(saved.tokens.clone(), saved.removed.clone());
        let fed = (length + history.removed_tokens()) as usize;
        self.session_uses += 1;
        let session = Session { history, fed, rows, salt, user: None, used: self.session_uses };
        self.sessions.insert(id, session);
        self.settle();
        Ok(saved.host.clone())
    }

    fn load_rows(
        &mut self,
        file: &SessionFile,
        saved: &SavedSequence,
        salt: Option<u64>,
    ) -> Result<SequenceId, SessionError> {
        let kv = self.restore(&saved.shape(), salt)?;
        file.fill(0, &mut self.store, self.model.arena(), kv)?;
        Ok(kv)
    }

    fn idle_session(&mut self, id: SessionId) -> Result<&mut Session, SessionError> {
        let session = self.sessions.get_mut(&id).ok_or(SessionError::NoSession)?;
        if session.user.is_some() { Err(SessionError::Busy) } else { Ok(session) }
    }
}
