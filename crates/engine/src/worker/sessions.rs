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
    pub(crate) fn open_session(&mut self, id: SessionId) {
        self.sessions.insert(id, Session::default());
    }

    /// Forgets a conversation. Its request, if one runs, goes on alone.
    pub(crate) fn close_session(&mut self, id: SessionId) {
        if let Some(Session { rows: Rows::Cached(kv), .. }) = self.sessions.remove(&id) {
            self.store.drop_sequence(self.model.arena(), kv);
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
        if let Rows::Swapped(swapped) = &self.idle_session(id)?.rows {
            let swapped = Arc::clone(swapped);
            let kv =
                self.swap_in(&swapped, None).map_err(|error| SessionError::NotInCache(error.to_string()))?;
            self.idle_session(id)?.rows = Rows::Cached(kv);
        }
        let session = &self.sessions[&id];
        let source = self.row_source(session, host);
        session::save(path, self.identity, self.model.arena(), &[source])
    }

    fn row_source(&self, session: &Session, host: Vec<u8>) -> RowSource {
        let (length, runs, places) = match session.rows {
            Rows::Cached(kv) => {
                let runs =
                    (0..self.store.groups()).map(|group| session::row_runs(&self.store.rows(group, kv)));
                (self.store.length(kv), runs.collect(), session::places(&self.store, kv))
            }
            _ => (0, vec![Vec::new(); self.store.groups()], vec![Vec::new(); self.store.groups()]),
        };
        let (tokens, removed) = (session.history.tokens.clone(), session.history.removed().to_vec());
        RowSource { saved: SavedSequence { tokens, removed, length, runs, host }, places }
    }

    /// Opens a conversation from a file; returns the caller's bytes. Nothing has changed where that fails.
    pub(crate) fn load_session(&mut self, id: SessionId, path: &Path) -> Result<Vec<u8>, SessionError> {
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
        let rows = if length > 0 { Rows::Cached(self.load_rows(&file, saved)?) } else { Rows::None };
        let history = History::from_parts(saved.tokens.clone(), saved.removed.clone());
        let fed = (length + history.removed_tokens()) as usize;
        self.session_uses += 1;
        let session = Session { history, fed, rows, user: None, used: self.session_uses };
        self.sessions.insert(id, session);
        self.settle();
        Ok(saved.host.clone())
    }

    fn load_rows(&mut self, file: &SessionFile, saved: &SavedSequence) -> Result<SequenceId, SessionError> {
        let kv = self.restore(&saved.shape(), None)?;
        let places = session::places(&self.store, kv);
        match file.read_rows(0, self.model.arena(), &places) {
            Ok(()) => {
                self.store.publish(kv);
                Ok(kv)
            }
            Err(error) => {
                self.store.drop_sequence(self.model.arena(), kv);
                Err(error)
            }
        }
    }

    fn idle_session(&mut self, id: SessionId) -> Result<&mut Session, SessionError> {
        let session = self.sessions.get_mut(&id).ok_or(SessionError::NoSession)?;
        if session.user.is_some() { Err(SessionError::Busy) } else { Ok(session) }
    }
}
