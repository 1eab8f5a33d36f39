//! The file of a conversation, of which no turn is lost silently.

use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Error, Result, anyhow};
use minfer::engine::kv::session::{SessionError, check_target};
use minfer::engine::{Engine, SessionId};
use serde_json::Value;

use crate::{output, refusal};

/// How long another process that saves into the same folder is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most names beside a file that are tried.
const NAMES: u32 = 1000;

/// The flag that names a file, as messages begin with it.
pub(super) const FLAG: &str = "--session ";

/// A file that a conversation goes on from and is saved to.
pub(super) struct SessionFile {
    path: PathBuf,
    /// How it was named: the flag with a space, or nothing.
    flag: &'static str,
    /// What had the name when it was last read or written here.
    seen: Option<Stamp>,
}

/// Whether what another process has written meanwhile leaves a place for this conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meanwhile {
    /// It goes to another file beside that one.
    Beside,
    /// It is not saved: rows that can be computed again are not worth another file.
    Dropped,
}

impl SessionFile {
    /// Finds out before a model loads what would come to light only when the conversation is saved.
    ///
    /// # Errors
    /// The name is one of something else than a session file, or the folder takes no files.
    pub(super) fn new(path: &Path, flag: &'static str) -> Result<SessionFile> {
        check_target(path).map_err(|error| match error {
            error @ (SessionError::Io { .. } | SessionError::NoFolder(_)) => not_saved(path, &error),
            error => not_used(flag, path, &error),
        })?;
        Ok(SessionFile { path: path.to_owned(), flag, seen: None })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a path leads to it.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        path == self.path || real(path).is_some_and(|path| real(&self.path) == Some(path))
    }

    /// The conversation in it with what was saved beside it; `None` where there is no such file yet.
    pub(super) fn open(&mut self, engine: &Engine) -> Result<Option<(SessionId, Value)>> {
        self.seen = Stamp::of(&self.path);
        self.seen.as_ref().map(|_| open(engine, self.flag, &self.path)).transpose()
    }

    /// Saves a conversation; returns the file's length. A file that another process has changed meanwhile stays as it is.
    pub(super) fn save(
        &mut self,
        engine: &Engine,
        session: SessionId,
        host: &Value,
        meanwhile: Meanwhile,
    ) -> Result<u64> {
        let _turn = take_turn(&self.path);
        let now = Stamp::of(&self.path);
        if now.is_some() && now != self.seen {
            let path = self.path.display().to_string();
            if meanwhile == Meanwhile::Dropped {
                output::note(&format!(
                    "note: {path} was changed by another process meanwhile and is left as it is"
                ));
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

/// Where a path leads to, whether or not there is a file yet.
fn real(path: &Path) -> Option<PathBuf> {
    let folder = || path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    path.canonicalize().ok().or_else(|| Some(folder().canonicalize().ok()?.join(path.file_name()?)))
}

/// The conversation in a file with what was saved beside it. `flag` is how the file was named.
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
    anyhow!("the conversation cannot be saved to {}: {}", path.display(), refusal::text(error))
}

fn not_used(flag: &str, path: &Path, error: &SessionError) -> Error {
    let advice = match error {
        SessionError::Model | SessionError::Template | SessionError::Format { .. } | SessionError::Shape => {
            "; it is left as it is, name another file"
        }
        SessionError::Folder => "; name a file in it",
        _ => "; it is left as it is",
    };
    anyhow!("{flag}{} cannot be used: {}{advice}", path.display(), refusal::text(error))
}

/// What tells one version of a file from the next. Each is written anew and gets the name when it is whole.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    length: u64,
    modified: Option<std::time::SystemTime>,
    identity: (u64, u64),
}

impl Stamp {
    /// Of what has a name now; `None` where nothing has.
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

/// Keeps others that save into the folder of `path` waiting. A folder that cannot be locked is no reason not to save.
fn take_turn(path: &Path) -> Option<File> {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (folder, start) = (File::open(folder).ok()?, Instant::now());
    while let Err(std::fs::TryLockError::WouldBlock) = folder.try_lock() {
        if start.elapsed() > PATIENCE {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(folder)
}

/// A name like that of a file, which nothing has.
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
