//! Sessions: conversations whose tokens and KV rows an engine keeps between requests.

use std::path::Path;
use std::sync::Arc;

use minfer_graph::KvSpec;

use crate::RequestId;
use crate::history::History;
use crate::host::SwapSpace;
use crate::kv::session::{SessionError, SessionFile, SessionIdentity, SessionRows};
use crate::kv::{SequenceId, SequenceLayout};

/// Names a conversation of one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub(crate) u64);

/// What is known of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionInfo {
    /// Every token, including removed ones.
    pub tokens: Vec<u32>,
    /// Tokens whose rows are kept; they need not be fed again.
    pub rows: u32,
    /// Tokens that context shifts have removed.
    pub removed: u32,
}

/// Where the KV rows of a sequence's fed tokens are stored.
#[derive(Debug, Default)]
pub(crate) enum RowStorage {
    /// Not stored: they have to be computed.
    #[default]
    None,
    /// In the KV store.
    Cached(SequenceId),
    /// In host memory: a shifted sequence is swapped out, because its rows cannot be recomputed.
    Swapped(Arc<Swapped>),
}

/// The rows of a swapped-out sequence.
#[derive(Debug)]
pub(crate) struct Swapped {
    pub(crate) layout: SequenceLayout,
    pub(crate) rows: SwapSpace,
}

/// A conversation between requests.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) history: History,
    /// Tokens that have been fed, whether their rows are still there or not.
    pub(crate) fed: usize,
    pub(crate) rows: RowStorage,
    /// The salt that every request of this conversation must have.
    pub(crate) salt: Option<u64>,
    /// The running request that uses its history and rows.
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
    /// Opens a file of one conversation.
    ///
    /// # Errors
    /// As [`open_all`](Self::open_all), or it holds another number of them.
    pub(crate) fn open(&self, path: &Path) -> Result<SessionRows, SessionError> {
        let file = SessionFile::open(path)?;
        match file.sequences() {
            [_] => self.verify(file),
            more => {
                file.check(self.identity, &self.spec)?;
                let text = format!("{} conversations where one is expected", more.len());
                Err(SessionError::Contradiction(text))
            }
        }
    }

    /// Opens a file of any number of conversations. What its header says is checked before a row is
    /// read. Needs no engine, so that steps go on meanwhile.
    ///
    /// # Errors
    /// The file is not sound, or not of this model, template, KV format and context.
    pub(crate) fn open_all(&self, path: &Path) -> Result<SessionRows, SessionError> {
        self.verify(SessionFile::open(path)?)
    }

    fn verify(&self, file: SessionFile) -> Result<SessionRows, SessionError> {
        file.check(self.identity, &self.spec)?;
        let (vocab, n_ctx) = (self.vocab, self.n_ctx);
        for saved in file.sequences() {
            let length = saved.length;
            if let Some(&token) = saved.tokens.iter().find(|&&token| token as usize >= vocab) {
                return Err(SessionError::Contradiction(format!("token {token} of a vocabulary of {vocab}")));
            }
            if length > n_ctx {
                return Err(SessionError::TooLong { length, n_ctx });
            }
        }
        file.verify()
    }
}
