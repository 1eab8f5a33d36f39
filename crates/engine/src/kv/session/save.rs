//! Writing a session file.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use minfer_graph::KvSpec;
use minfer_graph::backend::KvArena;
use tempfile::NamedTempFile;
use xxhash_rust::xxh3::Xxh3;

use super::header::Header;
use super::{
    MOST_HEADER_BYTES, MOST_SEQUENCES, Places, SESSION_VERSION, SavedSequence, SessionError, SessionIdentity,
    pieces, places, row_bytes, row_runs,
};
use crate::kv::{SequenceId, Store};

/// The first bytes of every session file.
pub(super) const MAGIC: [u8; 8] = *b"MINFSESS";
/// Bytes before the header.
pub(super) const FRONT: u64 = 24;
/// Bytes of a checksum.
pub(super) const SUM: u64 = 8;

/// A sequence to be saved, and where its rows lie.
#[derive(Debug, Clone)]
pub struct RowSource {
    /// Tokens, runs, the caller's bytes.
    pub saved: SavedSequence,
    /// Where the rows of the runs lie.
    pub places: Places,
}

impl RowSource {
    /// A sequence of a store whose fed tokens are `tokens` without the `removed` ones.
    pub fn of(
        store: &Store,
        id: SequenceId,
        tokens: Vec<u32>,
        removed: Vec<Range<u32>>,
        host: Vec<u8>,
    ) -> RowSource {
        let runs = (0..store.groups()).map(|group| row_runs(&store.rows(group, id))).collect();
        let saved = SavedSequence { tokens, removed, length: store.length(id), runs, host };
        RowSource { saved, places: places(store, id) }
    }
}

/// Writes sequences with their rows; returns the file's length. Rows go from the arena to the file
/// one layer at a time.
///
/// # Errors
/// The file cannot be written, or the path [is another kind of file](check_target). What was there
/// before is untouched.
///
/// # Panics
/// More than 65 536 sequences.
pub fn save(
    path: &Path,
    identity: SessionIdentity,
    arena: &dyn KvArena,
    sequences: &[RowSource],
) -> Result<u64, SessionError> {
    let saved = sequences.iter().map(|source| source.saved.clone()).collect();
    write(path, identity, arena.spec(), saved, |put| {
        let mut bytes = Vec::new();
        for (rows, count) in sequences.iter().flat_map(|source| pieces(arena.spec(), &source.places)) {
            bytes.resize(count, 0);
            arena.read_rows(&rows, &mut bytes)?;
            put(&bytes)?;
        }
        Ok(())
    })
}

/// As [`save`], with rows from anywhere: `rows` puts them in the order of the file.
pub(crate) fn write(
    path: &Path,
    identity: SessionIdentity,
    spec: &KvSpec,
    saved: Vec<SavedSequence>,
    rows: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<(), SessionError>) -> Result<(), SessionError>,
) -> Result<u64, SessionError> {
    let path = behind_links(path);
    let (temporary, folder) = beside(&path)?;
    let length = write_all(&temporary, identity, spec, saved, rows)?;
    // Once more: it may have come while rows were written.
    check_name(&path)?;
    persist(temporary, &path, folder)?;
    Ok(length)
}

/// Whether a session can be saved to `path`: it does not exist or is a session file, and files can
/// be created in its folder.
///
/// # Errors
/// The path is a folder, a device, a pipe, a dangling link, another kind of file or read-only, or
/// no file can be created beside it.
pub fn check_target(path: &Path) -> Result<(), SessionError> {
    beside(&behind_links(path)).map(drop)
}

/// A new file in the folder of `path`, and the folder.
fn beside(path: &Path) -> Result<(NamedTempFile, &Path), SessionError> {
    check_name(path)?;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        return Err(SessionError::NoFolder(folder.to_owned()));
    }
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    // `tempfile` would put the temporary name, which no user knows, into the error.
    let temporary = tempfile::Builder::new().prefix(&name).suffix(".tmp").make_in(folder, create);
    Ok((temporary.map_err(SessionError::io("creating a file beside it"))?, folder))
}

/// Creates a file that is private to its owner.
fn create(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Fails if the path exists and is not a session file.
fn check_name(path: &Path) -> Result<(), SessionError> {
    if path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Ok(());
    }
    let (mut file, mut magic) = (open_regular(path)?, [0; MAGIC.len()]);
    match file.read_exact(&mut magic) {
        Ok(()) if magic == MAGIC => check_writable(path),
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(SessionError::io("reading it")(error)),
        _ => Err(SessionError::Foreign),
    }
}

/// Fails if the file is read-only: the rename that replaces it would not check.
fn check_writable(path: &Path) -> Result<(), SessionError> {
    let metadata = path.metadata().map_err(SessionError::io("opening it"))?;
    if metadata.permissions().readonly() {
        return Err(SessionError::ReadOnly);
    }
    match OpenOptions::new().write(true).open(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(SessionError::ReadOnly),
        opened => opened.map(drop).map_err(SessionError::io("opening it")),
    }
}

/// Opens a regular file for reading. Other files are not opened, because a pipe would block.
pub(super) fn open_regular(path: &Path) -> Result<File, SessionError> {
    match path.metadata().map_err(SessionError::io("opening it"))? {
        metadata if metadata.is_dir() => Err(SessionError::Folder),
        metadata if !metadata.is_file() => Err(SessionError::NotRegular),
        _ => File::open(path).map_err(SessionError::io("opening it")),
    }
}

/// The target of a symbolic link, so that the link itself is kept.
fn behind_links(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Syncs the file, renames it, and syncs the folder. A replaced file keeps its mode; a new one is
/// private to its owner.
fn persist(temporary: NamedTempFile, path: &Path, folder: &Path) -> Result<(), SessionError> {
    if let Ok(metadata) = path.metadata() {
        let kept = temporary.as_file().set_permissions(metadata.permissions());
        kept.map_err(SessionError::io("writing it"))?;
    }
    temporary.as_file().sync_all().map_err(SessionError::io("writing it"))?;
    temporary.persist(path).map_err(|error| SessionError::io("renaming it")(error.error))?;
    // Not every file system lets a folder be synced; the file itself is safe by now.
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
    Ok(())
}

fn write_all(
    file: &NamedTempFile,
    identity: SessionIdentity,
    spec: &KvSpec,
    saved: Vec<SavedSequence>,
    rows: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<(), SessionError>) -> Result<(), SessionError>,
) -> Result<u64, SessionError> {
    assert!(saved.len() <= MOST_SEQUENCES, "{} sequences for one session file", saved.len());
    let row_bytes: u64 = saved.iter().map(|sequence| row_bytes(spec, sequence)).sum();
    let header = Header::new(identity, spec, saved).encode();
    if header.len() > MOST_HEADER_BYTES as usize {
        return Err(SessionError::LongHeader { found: header.len() as u64 });
    }
    let length = FRONT + header.len() as u64 + SUM + row_bytes + SUM;
    let mut out = Summed { out: BufWriter::with_capacity(1 << 20, file.as_file()), sum: Xxh3::new() };
    out.write(&MAGIC)?;
    out.write(&SESSION_VERSION.to_le_bytes())?;
    out.write(&(header.len() as u32).to_le_bytes())?;
    out.write(&length.to_le_bytes())?;
    out.write(&header)?;
    out.write_sum()?;
    let mut left = row_bytes;
    rows(&mut |bytes| {
        left = left.checked_sub(bytes.len() as u64).ok_or(SessionError::Interrupted)?;
        out.write(bytes)
    })?;
    if left > 0 {
        return Err(SessionError::Interrupted);
    }
    out.write_sum()?;
    out.out.flush().map_err(SessionError::io("writing it"))?;
    Ok(length)
}

/// A writer that computes a checksum of what it writes.
struct Summed<W> {
    out: W,
    sum: Xxh3,
}

impl<W: Write> Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        self.sum.update(bytes);
        self.out.write_all(bytes).map_err(SessionError::io("writing it"))
    }

    /// Writes the checksum so far; later checksums cover it too.
    fn write_sum(&mut self) -> Result<(), SessionError> {
        let sum = self.sum.digest();
        self.write(&sum.to_le_bytes())
    }
}
