//! A partial download, which a later pull resumes.
//!
//! The folder of a partial file has `data` (the bytes), `state` (how many are committed) and,
//! during a download, `package/`. Bytes are committed when a whole part is on disk. Opening the
//! file again truncates it to the committed bytes.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::digest::{Sha, hash_prefix};
use crate::disk;
use crate::error::HubError;

/// The first word of a state file, with the version of its form.
const MAGIC: &str = "minfer-partial-1";

/// An open partial file.
pub(crate) struct Partial {
    folder: PathBuf,
    data: File,
    key: String,
    sha: Sha,
    bytes: u64,
    parts: u32,
}

impl Partial {
    /// Opens what is there from the source called `key`, or starts anew; `checked` hears how many
    /// bytes were checked.
    pub(crate) fn open(folder: &Path, key: &str, checked: &mut dyn FnMut(u64)) -> Result<Self, HubError> {
        disk::make_folder(folder)?;
        let (sha, bytes, parts) = match State::read(folder, key) {
            Some(state) => {
                let sha = hash_prefix(&folder.join("data"), state.bytes, checked)?;
                if sha.hex() == state.sha256 {
                    (sha, state.bytes, state.parts)
                } else {
                    (Sha::default(), 0, 0)
                }
            }
            None => (Sha::default(), 0, 0),
        };
        let data = open_data(&folder.join("data"), bytes)?;
        Ok(Self { folder: folder.to_path_buf(), data, key: key.to_owned(), sha, bytes, parts })
    }

    /// The bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many parts are sure.
    pub(crate) fn parts(&self) -> u32 {
        self.parts
    }

    /// The SHA-256 of the bytes so far, in hexadecimal.
    pub(crate) fn sha256(&self) -> String {
        self.sha.hex()
    }

    /// A fresh empty folder for the package of the next part.
    pub(crate) fn package_folder(&self) -> Result<PathBuf, HubError> {
        let folder = self.folder.join("package");
        disk::remove_folder(&folder)?;
        disk::make_folder(&folder)?;
        Ok(folder)
    }

    /// Appends bytes; they are not sure before [`Partial::commit_part`].
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), HubError> {
        self.data.write_all(bytes).map_err(HubError::io(&self.folder.join("data")))?;
        self.sha.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Makes all appended bytes sure, as one part.
    pub(crate) fn commit_part(&mut self) -> Result<(), HubError> {
        self.data.sync_all().map_err(HubError::io(&self.folder.join("data")))?;
        self.parts += 1;
        State { parts: self.parts, bytes: self.bytes, sha256: self.sha.hex() }
            .write(&self.folder, &self.key)?;
        disk::remove_folder(&self.folder.join("package"))
    }

    /// The first four bytes, or fewer.
    pub(crate) fn head(&self) -> Result<Vec<u8>, HubError> {
        let path = self.folder.join("data");
        let mut head = Vec::new();
        File::open(&path)
            .and_then(|data| data.take(4).read_to_end(&mut head))
            .map_err(HubError::io(&path))?;
        Ok(head)
    }

    /// Gives the committed file its place, and drops the rest of the folder; returns the file's
    /// size.
    pub(crate) fn finish(self, place: &Path) -> Result<u64, HubError> {
        drop(self.data);
        disk::rename_durably(&self.folder.join("data"), place)?;
        disk::remove_folder(&self.folder)?;
        Ok(self.bytes)
    }

    /// Drops all that came.
    pub(crate) fn discard(self) -> Result<(), HubError> {
        drop(self.data);
        disk::remove_folder(&self.folder)
    }
}

/// What is sure of a partial file.
struct State {
    parts: u32,
    bytes: u64,
    sha256: String,
}

impl State {
    /// The state on disk, where it is readable and from the source called `key`.
    fn read(folder: &Path, key: &str) -> Option<Self> {
        let text = fs::read_to_string(folder.join("state")).ok()?;
        let (head, tail) = text.strip_suffix('\n')?.split_once('\n')?;
        let words: Vec<&str> = head.split(' ').collect();
        let [MAGIC, parts, bytes, sha256] = words[..] else { return None };
        let state =
            Self { parts: parts.parse().ok()?, bytes: bytes.parse().ok()?, sha256: sha256.to_owned() };
        (tail == key).then_some(state)
    }

    fn write(&self, folder: &Path, key: &str) -> Result<(), HubError> {
        let text = format!("{MAGIC} {} {} {}\n{key}\n", self.parts, self.bytes, self.sha256);
        disk::write_atomically(&folder.join("state"), text.as_bytes())
    }
}

/// Opens the data file with exactly `bytes` bytes kept, ready to append.
fn open_data(path: &Path, bytes: u64) -> Result<File, HubError> {
    let open = || -> std::io::Result<File> {
        let mut data = File::options().create(true).write(true).truncate(false).open(path)?;
        data.set_len(bytes)?;
        data.seek(SeekFrom::End(0))?;
        Ok(data)
    };
    open().map_err(HubError::io(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &Path, key: &str) -> Partial {
        Partial::open(folder, key, &mut |_| ()).unwrap()
    }

    /// A folder where one part `abc` is sure and `de` came after it.
    fn interrupted() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let mut partial = open(folder.path(), "k");
        partial.append(b"abc").unwrap();
        partial.commit_part().unwrap();
        partial.append(b"de").unwrap();
        folder
    }

    #[test]
    fn unsure_bytes_are_cut_off() {
        let folder = interrupted();
        let mut partial = open(folder.path(), "k");
        assert_eq!((partial.bytes(), partial.parts()), (3, 1));
        partial.append(b"XYZ").unwrap();
        partial.commit_part().unwrap();
        let mut whole = Sha::default();
        whole.update(b"abcXYZ");
        assert_eq!(partial.sha256(), whole.hex());
        assert_eq!(partial.head().unwrap(), b"abcX");
        let other = tempfile::tempdir().unwrap();
        let place = other.path().join("whole");
        assert_eq!(partial.finish(&place).unwrap(), 6);
        assert_eq!(fs::read(&place).unwrap(), b"abcXYZ");
        assert!(!folder.path().exists());
    }

    #[test]
    fn another_source_or_damaged_bytes_start_anew() {
        let folder = interrupted();
        assert_eq!(open(folder.path(), "other").bytes(), 0);

        let folder = interrupted();
        fs::write(folder.path().join("data"), b"aXcde").unwrap();
        assert_eq!((open(folder.path(), "k").bytes(), open(folder.path(), "k").parts()), (0, 0));

        let folder = interrupted();
        fs::write(folder.path().join("data"), b"a").unwrap();
        assert_eq!(open(folder.path(), "k").bytes(), 0);
    }

    #[test]
    fn an_unreadable_state_starts_anew() {
        for state in [
            "",
            "\n",
            "minfer-partial-1 1 3\nk\n",
            "minfer-partial-9 1 3 x\nk\n",
            "minfer-partial-1 one 3 x\nk\n",
        ] {
            let folder = interrupted();
            fs::write(folder.path().join("state"), state).unwrap();
            assert_eq!(open(folder.path(), "k").bytes(), 0, "{state:?}");
        }
    }
}
