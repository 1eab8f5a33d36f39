//! A progress line on stderr. It is erased when it is dropped, and on signals.

use std::sync::mpsc::channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{output, signals};

/// Work that takes less time shows no line.
const DELAY: Duration = Duration::from_secs(1);
/// The shortest time between two drawings.
const BETWEEN: Duration = Duration::from_millis(100);
/// How long a signal waits for a terminal that does not accept the erasing.
const LAST_WAIT: Duration = Duration::from_millis(100);

/// The line that is on the terminal.
static SHOWN: Mutex<Option<Shown>> = Mutex::new(None);

struct Shown {
    line: ProgressBar,
    /// When it was last drawn.
    drawn: Instant,
}

/// The progress of work that may take long. Without a terminal nothing is shown.
pub(crate) struct ProgressLine {
    what: &'static str,
    since: Instant,
    delay: Duration,
    /// Absent where nothing is to be shown.
    line: Option<ProgressBar>,
}

impl ProgressLine {
    /// Progress of `what`, such as "loading".
    pub(crate) fn begin(what: &'static str) -> ProgressLine {
        ProgressLine::with(what, DELAY, None, "{wide_msg:.dim}")
    }

    /// A bar of bytes, if their total is known. It is shown at once.
    pub(crate) fn for_bytes(total: Option<u64>) -> ProgressLine {
        let template = match total {
            Some(_) => "{msg:12} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}",
            None => "{spinner} {wide_msg}",
        };
        ProgressLine::with("", Duration::ZERO, total, template)
    }

    fn with(what: &'static str, delay: Duration, length: Option<u64>, template: &str) -> ProgressLine {
        // Without the signal thread a signal would leave the line behind.
        let is_shown = output::stderr_is_terminal() && signals::watch_endings().is_ok();
        let line = is_shown.then(|| {
            let line = ProgressBar::with_draw_target(length, ProgressDrawTarget::hidden());
            line.with_style(ProgressStyle::with_template(template).expect("a sound template"))
        });
        ProgressLine { what, since: Instant::now(), delay, line }
    }

    /// Shows the state after the name of the work.
    pub(crate) fn show(&self, state: impl FnOnce() -> Option<String>) {
        self.draw(|line| {
            let state = state().map(|state| format!(": {state}")).unwrap_or_default();
            set_message(line, format!("{}{state}", self.what));
        });
    }

    /// Shows how many bytes are done, and the stage.
    pub(crate) fn show_bytes(&self, stage: impl FnOnce() -> String, bytes: u64) {
        self.draw(|line| {
            set_message(line, stage());
            line.set_position(bytes);
        });
    }

    fn draw(&self, draw: impl FnOnce(&ProgressBar)) {
        let Some(line) = self.line.as_ref().filter(|_| self.since.elapsed() >= self.delay) else { return };
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

    /// Erases the line.
    pub(crate) fn end(&mut self) {
        if let Some(line) = self.line.take() {
            let mut shown = lock();
            *shown = None;
            line.finish_and_clear();
        }
    }

    /// Writes to stderr above the line.
    pub(crate) fn suspend(write: impl FnOnce()) {
        let line = lock().as_ref().map(|shown| shown.line.clone());
        match line {
            Some(line) => line.suspend(write),
            None => write(),
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.end();
    }
}

fn set_message(line: &ProgressBar, text: String) {
    if line.message() != text {
        line.set_message(text);
    }
}

/// Erases the line before the process ends; nothing is drawn afterwards.
pub(crate) fn clear_for_good() {
    let (done, wait) = channel();
    let clear = move || {
        let shown = lock();
        if let Some(shown) = &*shown {
            shown.line.finish_and_clear();
        }
        // The lock is kept, so that nobody draws again.
        std::mem::forget(shown);
        let _ = done.send(());
    };
    if std::thread::Builder::new().spawn(clear).is_ok() {
        let _ = wait.recv_timeout(LAST_WAIT);
    }
}

fn lock() -> MutexGuard<'static, Option<Shown>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}
