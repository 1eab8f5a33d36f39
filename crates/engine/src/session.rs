//! Conversations that an engine keeps between requests.

use std::sync::Arc;

use crate::RequestId;
use crate::history::History;
use crate::host::HostRoom;
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
    /// Tokens that have been fed.
    pub(crate) fed: usize,
    pub(crate) rows: Rows,
    /// That of every request that goes on with it.
    pub(crate) salt: Option<u64>,
    /// The request that has its history and rows now.
    pub(crate) user: Option<RequestId>,
    /// When it was last used, counted in uses.
    pub(crate) used: u64,
}

impl Session {
    /// Everything is to be computed again.
    pub(crate) fn forget(&mut self) {
        self.fed = 0;
        self.history = History::new(std::mem::take(&mut self.history.tokens));
    }

    pub(crate) fn info(&self) -> SessionInfo {
        let removed = self.history.removed_tokens();
        SessionInfo { tokens: self.history.tokens.clone(), rows: self.fed as u32 - removed, removed }
    }
}
