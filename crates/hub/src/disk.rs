//! Atomic file operations, and sizes of folders.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::error::HubError;

/// Makes a folder and those above it.
pub(crate) fn make_folder(path: &Path) -> Result<(), HubError> {
    fs::create_dir_all(path).map_err(HubError::io(path))
}

/// Removes a folder with all it holds; one that is not there is fine.
pub(crate) fn remove_folder(path: &Path) -> Result<(), HubError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(HubError::io(path)(error)),
        _ => Ok(()),
    }
}

/// Renames a file whose content is on disk already, and puts the new name on disk too.
pub(crate) fn rename_durably(from: &Path, to: &Path) -> Result<(), HubError> {
    fs::rename(from, to).map_err(HubError::io(to))?;
    to.parent().map_or(Ok(()), sync_folder)
}

/// Writes a small file so that a reader sees the old content or the new, never a mixture.
pub(crate) fn write_atomically(path: &Path, content: &[u8]) -> Result<(), HubError> {
    let fresh = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&fresh)?;
        file.write_all(content)?;
        file.sync_all()
    };
    let written = write().map_err(HubError::io(&fresh)).and_then(|()| rename_durably(&fresh, path));
    if written.is_err() {
        // Half a file is of no use to anybody. Where it cannot be removed either, the first error
        // says why.
        let _ = fs::remove_file(&fresh);
    }
    written
}

/// The bytes of all files under a folder. Files that vanish meanwhile count nothing.
pub(crate) fn folder_bytes(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => folder_bytes(&entry.path()),
            Ok(metadata) => metadata.len(),
            Err(_) => 0,
        })
        .sum()
}

/// The size of the largest file under a folder. Files that vanish meanwhile count nothing.
pub(crate) fn largest_file(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => largest_file(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.flatten().map(size).max().unwrap_or(0)
}

/// Puts a folder's entries on disk, where the system can do that.
fn sync_folder(path: &Path) -> Result<(), HubError> {
    if cfg!(unix) {
        File::open(path).and_then(|folder| folder.sync_all()).map_err(HubError::io(path))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_file_is_replaced_and_leaves_no_fresh_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        write_atomically(&path, b"one").unwrap();
        write_atomically(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(folder_bytes(folder.path()), 3);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_could_not_be_written_is_not_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        write_atomically(&path, b"one").unwrap();
        // A disk without any room.
        std::os::unix::fs::symlink("/dev/full", path.with_extension("new")).unwrap();
        let error = write_atomically(&path, b"two").unwrap_err();
        assert!(error.to_string().contains("state.new: No space left"), "{error}");
        assert_eq!(
            (fs::read(&path).unwrap(), fs::read_dir(folder.path()).unwrap().count()),
            (b"one".to_vec(), 1)
        );
    }

    #[test]
    fn errors_carry_the_path() {
        let folder = tempfile::tempdir().unwrap();
        let error = write_atomically(&folder.path().join("missing/state"), b"x").unwrap_err();
        assert!(error.to_string().contains("missing/state.new"), "{error}");
        assert!(remove_folder(&folder.path().join("missing")).is_ok());
    }
}
