//! The file that keeps the conversations of a model's slots: written while requests run, read when
//! the model is loaded.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use minfer::Model;
use minfer::engine::kv::session::{SessionError, check_target};

/// A write that took so long is followed by a pause this many times as long, so that the disk has
/// time for others.
const PAUSE: u32 = 1;

/// The highest "nice" value.
#[cfg(target_os = "linux")]
const LOWEST_PRIORITY: i32 = 19;

/// The file of one model, written by a thread of its own.
pub(crate) struct SlotsFile {
    state: Mutex<State>,
    changed: Condvar,
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    /// A request has ended since the file was last written.
    changed: bool,
    closed: bool,
}

impl SlotsFile {
    /// Brings the file's rows to the model's cache, if it is there, and keeps it up to date from
    /// here on.
    ///
    /// # Errors
    /// It cannot be used, or no file can be written there; it is left as it is.
    pub(crate) fn open(path: PathBuf, model: &Model) -> Result<Arc<SlotsFile>, String> {
        let failed = |error: SessionError| format!("--slots-file {}: {error}", path.display());
        check_target(&path).map_err(failed)?;
        if path.exists() {
            let loaded = model.engine().load_slots(None, &path).map_err(failed)?;
            let (conversations, tokens) = (loaded.slots, loaded.tokens);
            tracing::info!(conversations, tokens, "restored {}", path.display());
        }
        let file = SlotsFile { state: Mutex::default(), changed: Condvar::new(), writer: Mutex::default() };
        let (file, model) = (Arc::new(file), model.clone());
        let writer = std::thread::Builder::new().name("minfer-slots".to_owned()).spawn({
            let (file, path) = (Arc::clone(&file), path.clone());
            move || file.keep(&path, &model)
        });
        let writer = writer.map_err(|error| format!("--slots-file {}: {error}", path.display()))?;
        *lock(&file.writer) = Some(writer);
        Ok(file)
    }

    /// A request has ended: its conversation is to be written.
    pub(crate) fn mark(&self) {
        lock(&self.state).changed = true;
        self.changed.notify_all();
    }

    /// Writes what is not written yet, and ends. Blocks until then.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
        if let Some(writer) = lock(&self.writer).take() {
            // It has no panics of its own to tell about.
            let _ = writer.join();
        }
    }

    fn keep(&self, path: &Path, model: &Model) {
        yield_to_others();
        while self.wait_for_change() {
            let started = Instant::now();
            match model.engine().save_slots(None, path) {
                Ok(saved) => {
                    let (conversations, bytes, milliseconds) =
                        (saved.slots, saved.bytes, started.elapsed().as_millis() as u64);
                    tracing::debug!(conversations, bytes, milliseconds, "wrote {}", path.display());
                }
                Err(SessionError::Stopped) => return,
                // Requests needed the memory: the next one that ends asks again.
                Err(error @ SessionError::Interrupted) => tracing::debug!("{}: {error}", path.display()),
                Err(error) => tracing::warn!("--slots-file {}: {error}", path.display()),
            }
            self.pause(started.elapsed() * PAUSE);
        }
    }

    /// Waits for something to write. Returns false once everything is written and no more will
    /// come.
    fn wait_for_change(&self) -> bool {
        let state = lock(&self.state);
        let waited = self.changed.wait_while(state, |state| !state.changed && !state.closed);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut state.changed)
    }

    /// Waits so long, or until the file is closed.
    fn pause(&self, time: Duration) {
        let waited = self.changed.wait_timeout_while(lock(&self.state), time, |state| !state.closed);
        drop(waited);
    }
}

/// Lets every other thread go first: writing a file is in no hurry, the steps of a model are.
pub(crate) fn yield_to_others() {
    #[cfg(target_os = "linux")]
    // Where the system does not allow it, steps are held up a little more.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), LOWEST_PRIORITY);
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
