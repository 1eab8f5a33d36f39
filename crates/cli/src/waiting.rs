//! A line on stderr while something takes long, gone when it ends, whatever ends it.

use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{output, signals};

/// What takes less shows nothing.
const PATIENCE: Duration = Duration::from_secs(1);
/// The shortest time from one drawing to the next: nobody reads faster.
const BETWEEN: Duration = Duration::from_millis(100);
/// How long the end of the process waits for a terminal that takes no more.
const LAST_PATIENCE: Duration = Duration::from_millis(100);

/// What is shown now.
static SHOWN: Mutex<Option<Shown>> = Mutex::new(None);

struct Shown {
    line: ProgressBar,
    /// When it was last drawn.
    drawn: Instant,
}

/// Something that may take long. Nothing is ever shown where stderr is no terminal.
pub(crate) struct Waiting {
    what: &'static str,
    since: Instant,
    patience: Duration,
    /// Absent where nothing is to be shown.
    line: Option<ProgressBar>,
}

impl Waiting {
    /// Begins to wait for `what`, words like "loading".
    pub(crate) fn begin(what: &'static str) -> Waiting {
        Waiting::with(what, PATIENCE, None, "{wide_msg:.dim}")
    }

    /// Begins to wait for bytes, of which `total` are to come where that is known. Shown at once.
    pub(crate) fn for_bytes(total: Option<u64>) -> Waiting {
        let template = match total {
            Some(_) => "{msg:12} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}",
            None => "{spinner} {wide_msg}",
        };
        Waiting::with("", Duration::ZERO, total, template)
    }

    fn with(what: &'static str, patience: Duration, length: Option<u64>, template: &str) -> Waiting {
        // A line that a signal would leave behind is not shown.
        let is_shown = output::stderr_is_terminal() && signals::watch_endings().is_ok();
        let line = is_shown.then(|| {
            let line = ProgressBar::with_draw_target(length, ProgressDrawTarget::hidden());
            line.with_style(ProgressStyle::with_template(template).expect("a sound template"))
        });
        Waiting { what, since: Instant::now(), patience, line }
    }

    /// Shows how far it has come, where that takes long enough.
    pub(crate) fn show(&self, state: impl FnOnce() -> Option<String>) {
        self.draw(|line| {
            let state = state().map(|state| format!(": {state}")).unwrap_or_default();
            let text = format!("{}{state}", self.what);
            if line.message() != text {
                line.set_message(text);
            }
        });
    }

    /// Shows how many bytes have come, and what is done with them.
    pub(crate) fn show_bytes(&self, stage: impl FnOnce() -> String, bytes: u64) {
        self.draw(|line| {
            let stage = stage();
            if line.message() != stage {
                line.set_message(stage);
            }
            line.set_position(bytes);
        });
    }

    /// Draws where it is time for that.
    fn draw(&self, draw: impl FnOnce(&ProgressBar)) {
        let Some(line) = self.line.as_ref().filter(|_| self.since.elapsed() >= self.patience) else { return };
        let mut shown = lock();
        let now = Instant::now();
        match &mut *shown {
            Some(shown) if now - shown.drawn < BETWEEN => return,
            Some(shown) => shown.drawn = now,
            None => {
                line.set_draw_target(ProgressDrawTarget::stderr());
                *shown = Some(Shown { line: line.clone(), drawn: now });
            }
        }
        draw(line);
    }

    /// Takes the line away.
    pub(crate) fn end(&mut self) {
        if let Some(line) = self.line.take() {
            let mut shown = lock();
            *shown = None;
            line.finish_and_clear();
        }
    }

    /// Writes something else to stderr.
    pub(crate) fn suspend(write: impl FnOnce()) {
        let line = lock().as_ref().map(|shown| shown.line.clone());
        match line {
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

/// Takes away what is shown, for good: the process ends. A terminal that takes no more is not waited for.
pub(crate) fn clear_for_good() {
    let (done, wait) = channel();
    let clear = move || {
        let shown = lock();
        if let Some(shown) = &*shown {
            shown.line.finish_and_clear();
        }
        // Nobody draws again.
        std::mem::forget(shown);
        let _ = done.send(());
    };
    if std::thread::Builder::new().spawn(clear).is_ok() {
        let _ = wait.recv_timeout(LAST_PATIENCE);
    }
}

fn lock() -> MutexGuard<'static, Option<Shown>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}
