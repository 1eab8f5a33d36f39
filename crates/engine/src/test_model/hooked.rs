//! An executor that panics on demand and says how long its runs take.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use minfer_graph::backend::KvArena;
use minfer_graph::{Batch, Executor, Extents, KvSpec};

use crate::{ModelExecutor, ModelExecutorError, ModelExecutorStats};

/// What an executor does beside its work. Calls are counted down where a field holds a number.
#[derive(Default)]
pub(crate) struct Hooks {
    /// Asking for the arena panics.
    pub(crate) arena: Option<u32>,
    /// Reading logits panics.
    pub(crate) logits: Option<u32>,
    /// Logits are cut short.
    pub(crate) short_logits: Option<u32>,
    /// Asking for counts panics.
    pub(crate) stats: bool,
    /// What a run of the body adds to the time.
    pub(crate) body_time: Option<fn(&Batch<'_>) -> Duration>,
    pub(crate) time: Duration,
}

fn burn(fuse: &mut Option<u32>) -> bool {
    let burns = *fuse == Some(0);
    *fuse = fuse.and_then(|left| left.checked_sub(1));
    burns
}

/// An executor with hooks.
pub(crate) struct Hooked {
    pub(crate) executor: Executor,
    pub(crate) hooks: Arc<Mutex<Hooks>>,
}

impl Hooked {
    fn hook<R>(&self, read: impl FnOnce(&mut Hooks) -> R) -> R {
        read(&mut self.hooks.lock().unwrap())
    }
}

impl ModelExecutor for Hooked {
    fn extents(&self) -> Extents {
        self.executor.extents()
    }

    fn vocab(&self) -> usize {
        ModelExecutor::vocab(&self.executor)
    }

    fn input_vocab(&self) -> usize {
        ModelExecutor::input_vocab(&self.executor)
    }

    fn kv_spec(&self) -> &KvSpec {
        self.executor.kv_spec()
    }

    fn run_body(&mut self, batch: &Batch<'_>) -> Result<(), ModelExecutorError> {
        self.hook(|hooks| hooks.time += hooks.body_time.map_or(Duration::ZERO, |time| time(batch)));
        ModelExecutor::run_body(&mut self.executor, batch)
    }

    fn run_head(&mut self, batch: &Batch<'_>) -> Result<(), ModelExecutorError> {
        ModelExecutor::run_head(&mut self.executor, batch)
    }

    fn logits(&self, row: usize) -> Result<Cow<'_, [f32]>, ModelExecutorError> {
        let (panics, short) = self.hook(|hooks| (burn(&mut hooks.logits), burn(&mut hooks.short_logits)));
        assert!(!panics, "no logits today");
        let logits = ModelExecutor::logits(&self.executor, row)?;
        Ok(if short { Cow::Owned(logits[..5].to_vec()) } else { logits })
    }

    fn arena(&mut self) -> &mut dyn KvArena {
        let panics = self.hook(|hooks| burn(&mut hooks.arena));
        assert!(!panics, "no arena today");
        ModelExecutor::arena(&mut self.executor)
    }

    fn stats(&self) -> ModelExecutorStats {
        assert!(!self.hook(|hooks| hooks.stats), "no stats today");
        ModelExecutor::stats(&self.executor)
    }
}
