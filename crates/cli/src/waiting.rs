//! A line on stderr while something takes long, gone when it ends.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

/// What takes less shows nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is shown now.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Something that may take long. Nothing is ever shown where stderr is no terminal.
pub(crate) struct Waiting {
    what: &'static str,
    since: Instant,
    /// Absent where nothing is to be shown.
    line: Option<ProgressBar>,
}

impl Waiting {
    /// Begins to wait for `what`, words like "loading".
    pub(crate) fn begin(what: &'static str) -> Waiting {
        let line = output::stderr_is_terminal().then(|| {
            let line = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
            line.with_style(ProgressStyle::with_template("{wide_msg:.dim}").expect("a sound template"))
        });
        Waiting { what, since: Instant::now(), line }
    }

    /// Shows how far it has come, where that takes long enough.
    pub(crate) fn show(&self, state: impl FnOnce() -> Option<String>) {
        let Some(line) = self.line.as_ref().filter(|_| self.since.elapsed() >= PATIENCE) else { return };
        let mut shown = lock();
        if line.is_hidden() {
            line.set_draw_target(ProgressDrawTarget::stderr());
            *shown = Some(line.clone());
        }
        let state = state().map(|state| format!(": {state}")).unwrap_or_default();
        let text = format!("{}{state}", self.what);
        if line.message() != text {
            line.set_message(text);
        }
    }

    /// Takes the line away.
    pub(crate) fn end(&mut self) {
        if let Some(line) = self.line.take() {
            *lock() = None;
            line.finish_and_clear();
        }
    }

    /// Writes something else to stderr.
    pub(crate) fn suspend(write: impl FnOnce()) {
        let shown = lock().clone();
        match shown {
            Some(line) => line.suspend(write),
            None => write(),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.end();
    }
}

fn lock() -> std::sync::MutexGuard<'static, Option<ProgressBar>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}
