//! Session files: a conversation with its KV rows. No turn is lost silently.

use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Error, Result, anyhow};
use minfer::engine::kv::session::{SessionError, check_target};
use minfer::engine::{Engine, SessionId};
use serde_json::Value;

use crate::{output, wording};

/// How long to wait for another process that saves into the same folder.
const LOCK_WAIT: Duration = Duration::from_secs(10);
/// Numbered names that are tried beside a file.
const NAMES: u32 = 1000;

/// The flag in front of the name of a file, in messages.
pub(super) const FLAG: &str = "--session ";

/// The file that a conversation is loaded from and saved to.
pub(super) struct SessionFile {
    path: PathBuf,
    /// [`FLAG`], or empty where the name was typed in a chat.
    flag: &'static str,
    /// The version that was last read or written.
    seen: Option<Stamp>,
}

/// What to do where another process has written the file meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meanwhile {
    /// Save to another file beside it.
    Beside,
    /// Do not save: the rows can be computed again.
    Dropped,
}

impl SessionFile {
    /// Checks before a model is loaded whether the conversation can be saved.
    ///
    /// # Errors
    /// The name is that of something else than a session file, or the folder is not writable.
    pub(super) fn new(path: &Path, flag: &'static str) -> Result<SessionFile> {
        check_target(path).map_err(|error| match error {
            error @ (SessionError::Io { .. } | SessionError::NoFolder(_)) => not_saved(path, &error),
            error => not_used(flag, path, &error),
        })?;
        Ok(SessionFile { path: path.to_owned(), flag, seen: None })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a path names this file.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        path == self.path || real(path).is_some_and(|path| real(&self.path) == Some(path))
    }

    /// The conversation and the host state in the file; `None` without a file.
    pub(super) fn open(&mut self, engine: &Engine) -> Result<Option<(SessionId, Value)>> {
        self.seen = Stamp::of(&self.path);
        self.seen.as_ref().map(|_| open(engine, self.flag, &self.path)).transpose()
    }

    /// Saves a conversation; returns the file's length. A file that another process has changed is
    /// not overwritten.
    pub(super) fn save(
        &mut self,
        engine: &Engine,
        session: SessionId,
        host: &Value,
        meanwhile: Meanwhile,
    ) -> Result<u64> {
        let _lock = lock_folder(&self.path);
        let now = Stamp::of(&self.path);
        if now.is_some() && now != self.seen {
            let path = self.path.display().to_string();
            if meanwhile == Meanwhile::Dropped {
                output::note(&format!("note: {path} was changed by another process and is left as it is"));
                return Ok(0);
            }
            self.path = name_beside(&self.path)?;
            output::note(&format!(
                "note: {path} was changed by another process meanwhile; this conversation is saved to {}",
                self.path.display()
            ));
        }
        let bytes = save(engine, session, &self.path, host)?;
        self.seen = Stamp::of(&self.path);
        Ok(bytes)
    }
}

/// The canonical path, also of a file that does not exist yet.
fn real(path: &Path) -> Option<PathBuf> {
    let folder = || path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    path.canonicalize().ok().or_else(|| Some(folder().canonicalize().ok()?.join(path.file_name()?)))
}

/// The conversation and the host state in a file.
pub(super) fn open(engine: &Engine, flag: &str, path: &Path) -> Result<(SessionId, Value)> {
    let (session, host) = engine.load_session(path).map_err(|error| not_used(flag, path, &error))?;
    let host = serde_json::from_slice(&host).map_err(|_| {
        engine.close_session(session);
        anyhow!("{flag}{} cannot be used: it was not saved by this program", path.display())
    })?;
    Ok((session, host))
}

/// Saves a conversation; returns the file's length.
pub(super) fn save(engine: &Engine, session: SessionId, path: &Path, host: &Value) -> Result<u64> {
    let saved = engine.save_session(session, path, host.to_string().into_bytes());
    saved.map_err(|error| not_saved(path, &error))
}

fn not_saved(path: &Path, error: &SessionError) -> Error {
    anyhow!("the conversation cannot be saved to {}: {}", path.display(), wording::text(error))
}

fn not_used(flag: &str, path: &Path, error: &SessionError) -> Error {
    let next = match error {
        SessionError::Model | SessionError::Template | SessionError::Format { .. } | SessionError::Shape => {
            "; it is left as it is, name another file"
        }
        SessionError::Folder => "; name a file in it",
        _ => "; it is left as it is",
    };
    anyhow!("{flag}{} cannot be used: {}{next}", path.display(), wording::text(error))
}

/// A version of a file. Each version is a new file that is renamed when it is complete.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    length: u64,
    modified: Option<std::time::SystemTime>,
    identity: (u64, u64),
}

impl Stamp {
    /// Of the file with this name; `None` without a file.
    fn of(path: &Path) -> Option<Stamp> {
        let metadata = path.metadata().ok()?;
        Some(Stamp {
            length: metadata.len(),
            modified: metadata.modified().ok(),
            identity: identity(&metadata),
        })
    }
}

#[cfg(unix)]
fn identity(metadata: &Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn identity(_metadata: &Metadata) -> (u64, u64) {
    (0, 0)
}

/// Locks the folder of `path` against other processes that save into it. Saving goes on where that
/// fails.
fn lock_folder(path: &Path) -> Option<File> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (folder, start) = (File::open(folder).ok()?, Instant::now());
    while let Err(std::fs::TryLockError::WouldBlock) = folder.try_lock() {
        if start.elapsed() > LOCK_WAIT {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(folder)
}

/// The first free name `FILE.2`, `FILE.3`, ...
fn name_beside(path: &Path) -> Result<PathBuf> {
    let named = |number: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    (2..NAMES).map(named).find(|path| path.symlink_metadata().is_err()).ok_or_else(|| {
        anyhow!("the conversation cannot be saved: {} and all names beside it are taken", path.display())
    })
}
