//! A lock between processes: one pull or removal of a file at a time.

use std::fs::{File, TryLockError};

use crate::cache::CacheDir;
use crate::disk;
use crate::error::HubError;

/// Held while a file of the cache is pulled or removed; dropping it lets the next one in.
///
/// The lock is on an empty file beside the partial folder. That file stays: were it removed, a
/// waiting process would hold the lock of a file that nobody else can see.
pub(crate) struct FileLock {
    _file: File,
}

impl FileLock {
    /// Takes the lock, waiting for its holder; `waiting` is called once where there is one.
    pub(crate) fn take(cache: &CacheDir, file: &str, waiting: impl FnOnce()) -> Result<Self, HubError> {
        let path = cache.lock_path(file);
        let lock = open(cache, file)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                waiting();
                lock.lock().map_err(HubError::io(&path))?;
            }
            Err(TryLockError::Error(error)) => return Err(HubError::io(&path)(error)),
        }
        Ok(Self { _file: lock })
    }

    /// Takes the lock, or fails with [`HubError::Busy`] where it is held.
    pub(crate) fn try_take(cache: &CacheDir, file: &str) -> Result<Self, HubError> {
        let lock = open(cache, file)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { _file: lock }),
            Err(TryLockError::WouldBlock) => Err(HubError::Busy { file: file.to_owned() }),
            Err(TryLockError::Error(error)) => Err(HubError::io(&cache.lock_path(file))(error)),
        }
    }

    /// Whether a pull or a removal holds the lock now. Nothing is written, and those who only look
    /// do not see each other.
    pub(crate) fn is_held(cache: &CacheDir, file: &str) -> bool {
        let looked = File::open(cache.lock_path(file)).map(|lock| lock.try_lock_shared());
        matches!(looked, Ok(Err(TryLockError::WouldBlock)))
    }
}

fn open(cache: &CacheDir, file: &str) -> Result<File, HubError> {
    disk::make_folder(&cache.partial_root())?;
    let path = cache.lock_path(file);
    File::options().create(true).append(true).open(&path).map_err(HubError::io(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_tells_whether_it_is_held_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::at(folder.path());
        assert!(!FileLock::is_held(&cache, "a.gguf"));
        assert!(!cache.partial_root().exists(), "a look makes no folder");
        let held = FileLock::try_take(&cache, "a.gguf").unwrap();
        assert!(FileLock::is_held(&cache, "a.gguf") && !FileLock::is_held(&cache, "b.gguf"));
        drop(held);
        assert!(!FileLock::is_held(&cache, "a.gguf"));
        assert!(FileLock::try_take(&cache, "a.gguf").is_ok());
    }

    #[test]
    fn a_second_taker_is_told_and_let_in_later() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::at(folder.path());
        let held = FileLock::try_take(&cache, "a.gguf").unwrap();
        assert!(matches!(FileLock::try_take(&cache, "a.gguf"), Err(HubError::Busy { .. })));
        let _other = FileLock::try_take(&cache, "b.gguf").expect("another file has its own lock");
        let mut told = false;
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| FileLock::take(&cache, "a.gguf", || told = true).map(|_| ()));
            std::thread::sleep(std::time::Duration::from_millis(30));
            drop(held);
            waiter.join().unwrap().unwrap();
        });
        assert!(told);
    }
}
