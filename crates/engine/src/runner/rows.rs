//! KV rows that are not computed: shared, forked, moved, saved to a file and restored.

use std::path::Path;

use super::{Runner, RunnerOptions, RunnerStats};
use crate::kv::session::{self, RowSource, SessionError, SessionFile, SessionIdentity};
use crate::kv::{SequenceId, Store, StoreError};

impl Runner {
    /// Forgets every sequence and every row that is kept, and goes on as a new runner of the same
    /// model.
    pub fn restart(&mut self, options: RunnerOptions) {
        let arena = self.model.arena();
        for id in self.store.ids() {
            self.store.drop_sequence(arena, id);
        }
        self.store.trim(arena, 0);
        let graph_builds = self.model.stats().graph_builds;
        self.store = Store::new(self.model.kv_spec(), options.store());
        self.counts = RunnerStats { graph_builds, ..RunnerStats::default() };
    }

    /// A new sequence that reuses the cached rows of the longest known beginning of `tokens`, at
    /// most all but the last one; returns how many.
    pub fn open_with(&mut self, tokens: &[u32]) -> (SequenceId, u32) {
        let sequence = self.store.create();
        let reused = self.store.reuse(sequence, tokens, None);
        (sequence, reused)
    }

    /// A copy of a sequence that shares its blocks until one of them writes (copy on write).
    ///
    /// # Panics
    /// The sequence was closed before.
    pub fn fork(&mut self, sequence: SequenceId) -> SequenceId {
        self.store.fork(sequence)
    }

    /// Releases blocks outside the attention window of a sequence's later tokens; returns how many.
    ///
    /// # Panics
    /// The sequence was closed before.
    pub fn evict_window(&mut self, sequence: SequenceId) -> u32 {
        self.store.evict_window(self.model.arena(), sequence, 0)
    }

    /// Moves up to `most` blocks to lower free places; returns how many.
    ///
    /// # Errors
    /// The cache's memory refused; nothing has moved then.
    pub fn compact(&mut self, most: u32) -> Result<u32, StoreError> {
        self.store.compact(self.model.arena(), most)
    }

    /// Writes a sequence that was never shifted to a session file; returns the file's length.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&mut self, sequence: SequenceId, path: &Path) -> Result<u64, SessionError> {
        let tokens = self.store.tokens(sequence).to_vec();
        let source = RowSource::of(&self.store, sequence, tokens, Vec::new(), Vec::new());
        session::save(path, SessionIdentity::default(), self.model.arena(), &[source])
    }

    /// A sequence with the rows of a file that a runner [`save`](Self::save)d, whatever the layout
    /// and block size there.
    ///
    /// # Errors
    /// The file is not sound or not of this shape and KV format, or there is no room for its rows.
    pub fn restore(&mut self, path: &Path) -> Result<SequenceId, SessionError> {
        let file = SessionFile::open(path)?;
        file.check(SessionIdentity::default(), self.model.kv_spec())?;
        let file = file.verify()?;
        let [saved] = file.sequences() else {
            let text = format!("{} sequences where one is expected", file.sequences().len());
            return Err(SessionError::Contradiction(text));
        };
        let sequence = self.store.restore(self.model.arena(), saved.layout(), None)?;
        file.fill(0, &mut self.store, self.model.arena(), sequence)?;
        self.counts.tokens_restored += u64::from(self.store.length(sequence));
        Ok(sequence)
    }
}
