//! Conversations that an engine keeps between requests.

use std::path::Path;
use std::sync::Arc;

use minfer_graph::KvSpec;

use crate::RequestId;
use crate::history::History;
use crate::host::HostRoom;
use crate::kv::session::{SessionError, SessionFile, SessionIdentity, SessionRows};
use crate::kv::{SequenceId, Shape};

/// Names a conversation of one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub(crate) u64);

/// What is known of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionInfo {
    /// Every token, those that were forgotten included.
    pub tokens: Vec<u32>,
    /// Tokens whose rows are kept; they need not be fed again.
    pub rows: u32,
    /// Tokens that context shifts have removed.
    pub removed: u32,
}

/// Where the rows of a sequence's fed tokens are.
#[derive(Debug, Default)]
pub(crate) enum Rows {
    /// Nowhere: they are to be computed.
    #[default]
    None,
    /// In the store.
    Cached(SequenceId),
    /// In the host's memory, because a shifted sequence cannot be computed again.
    Swapped(Arc<Swapped>),
}

/// Rows outside of the store.
#[derive(Debug)]
pub(crate) struct Swapped {
    pub(crate) shape: Shape,
    pub(crate) rows: HostRoom,
}

/// A conversation between requests.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) history: History,
    /// Tokens that have been fed, whether their rows are still there or not.
    pub(crate) fed: usize,
    pub(crate) rows: Rows,
    /// That of every request that goes on with it.
    pub(crate) salt: Option<u64>,
    /// The request that has its history and rows now.
    pub(crate) user: Option<RequestId>,
    /// When it was last used, counted in uses.
    pub(crate) used: u64,
}

/// What a session file must be for an engine to take it.
#[derive(Debug, Clone)]
pub(crate) struct SessionTerms {
    pub(crate) identity: SessionIdentity,
    pub(crate) spec: KvSpec,
    /// Token ids that can be fed are below it.
    pub(crate) vocab: usize,
    /// Positions of a sequence.
    pub(crate) n_ctx: u32,
}

impl SessionTerms {
    /// Opens a file of one conversation. What its header says is checked before a row is read. Needs no engine, so that steps go on
    /// meanwhile.
    ///
    /// # Errors
    /// The file is not sound, or not of this model, template, KV format and context.
    pub(crate) fn open(&self, path: &Path) -> Result<SessionRows, SessionError> {
        let file = SessionFile::open(path)?;
        file.check(self.identity, &self.spec)?;
        let [saved] = file.sequences() else {
            let text = format!("{} conversations where one is expected", file.sequences().len());
            return Err(SessionError::Contradiction(text));
        };
        let (vocab, length, n_ctx) = (self.vocab, saved.length, self.n_ctx);
        if let Some(&token) = saved.tokens.iter().find(|&&token| token as usize >= vocab) {
            return Err(SessionError::Contradiction(format!("token {token} of a vocabulary of {vocab}")));
        }
        if length > n_ctx {
            return Err(SessionError::TooLong { length, n_ctx });
        }
        file.verify()
    }
}
