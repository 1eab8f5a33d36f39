//! Where the bytes of a GGUF file come from: a file on disk, read on demand, or memory.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use super::error::{Cause, GgufError};
use super::limits::MAX_HEADER_BYTES;
use super::parse::{Outcome, Parsed, parse};

/// Bytes of a file that are read at first; a longer header is read in steps, each twice as long as
/// the one before.
const FIRST: u64 = 256 << 10;

/// Where the bytes of a model file come from.
///
/// A file is read and never mapped: a map needs as many addresses as the file has bytes, and if
/// somebody cuts the file short, the next access to it is a fatal signal, where a read is an error.
pub(super) enum Source {
    /// A file, of which the header has been read.
    File { handle: fs::File, header: Vec<u8>, opened: State },
    /// A file in memory, whole.
    Memory(Vec<u8>),
}

/// What tells that somebody wrote to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    length: u64,
    modified: Option<SystemTime>,
}

impl State {
    fn of(metadata: &fs::Metadata) -> State {
        State { length: metadata.len(), modified: metadata.modified().ok() }
    }
}

impl Source {
    /// Opens a file and reads its header.
    pub(super) fn open(path: &Path) -> Result<(Source, Parsed), GgufError> {
        // The kind is looked at first: opening a pipe would wait for a writer.
        check_kind(&fs::metadata(path)?)?;
        let handle = fs::File::open(path)?;
        let metadata = handle.metadata()?;
        check_kind(&metadata)?;
        let opened = State::of(&metadata);
        let (header, parsed) = read_header(&handle, opened.length)?;
        Ok((Source::File { handle, header, opened }, parsed))
    }

    /// Reads the header of a file in memory.
    pub(super) fn memory(bytes: Vec<u8>) -> Result<(Source, Parsed), GgufError> {
        match parse(&bytes, bytes.len() as u64)? {
            Outcome::Parsed(parsed) => Ok((Source::Memory(bytes), parsed)),
            Outcome::Needs(end) => unreachable!("there are no bytes up to {end} that are not in memory"),
        }
    }

    /// The bytes of the file up to the end of the header, or more.
    pub(super) fn header(&self) -> &[u8] {
        match self {
            Source::File { header, .. } => header,
            Source::Memory(bytes) => bytes,
        }
    }

    /// Bytes of the file when it was opened.
    pub(super) fn len(&self) -> u64 {
        match self {
            Source::File { opened, .. } => opened.length,
            Source::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Copies the bytes from `offset` on.
    ///
    /// # Panics
    /// They reach beyond the end that the file had when it was opened.
    pub(super) fn read(&self, offset: u64, target: &mut [u8]) -> Result<(), GgufError> {
        assert!(self.len().checked_sub(offset).is_some_and(|left| target.len() as u64 <= left));
        match self {
            Source::File { handle, .. } => read_at(handle, offset, target),
            Source::Memory(bytes) => {
                target.copy_from_slice(&bytes[offset as usize..][..target.len()]);
                Ok(())
            }
        }
    }

    /// Whether nobody has written to the file since it was opened, as far as its length and time of
    /// modification tell.
    pub(super) fn is_unchanged(&self) -> Result<bool, GgufError> {
        match self {
            Source::File { handle, opened, .. } => Ok(State::of(&handle.metadata()?) == *opened),
            Source::Memory(_) => Ok(true),
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header_bytes = self.header().len();
        out.debug_struct("Source").field("bytes", &self.len()).field("header_bytes", &header_bytes).finish()
    }
}

fn read_header(handle: &fs::File, length: u64) -> Result<(Vec<u8>, Parsed), GgufError> {
    let (mut header, mut wanted) = (Vec::new(), FIRST);
    loop {
        let (start, end) = (header.len(), wanted.min(MAX_HEADER_BYTES).min(length) as usize);
        header.try_reserve_exact(end - start).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        header.resize(end, 0);
        read_at(handle, start as u64, &mut header[start..])?;
        match parse(&header, length)? {
            Outcome::Parsed(parsed) => {
                header.truncate(parsed.header_end);
                header.shrink_to_fit();
                return Ok((header, parsed));
            }
            Outcome::Needs(end) if end > MAX_HEADER_BYTES => {
                return Err(GgufError::new(Cause::HeaderTooLong { limit: MAX_HEADER_BYTES }));
            }
            Outcome::Needs(end) => wanted = end.max(2 * wanted),
        }
    }
}

/// Copies the bytes of a file from `offset` on, where it had some when it was opened.
fn read_at(handle: &fs::File, offset: u64, target: &mut [u8]) -> Result<(), GgufError> {
    match read_exact_at(handle, offset, target) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            let end = offset + target.len() as u64;
            Err(GgufError::new(Cause::CutShort { end, length: handle.metadata()?.len() }))
        }
        result => Ok(result?),
    }
}

#[cfg(unix)]
fn read_exact_at(handle: &fs::File, offset: u64, target: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(handle, target, offset)
}

#[cfg(windows)]
fn read_exact_at(handle: &fs::File, mut offset: u64, mut target: &mut [u8]) -> io::Result<()> {
    while !target.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(handle, target, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                offset += count as u64;
                target = &mut target[count..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn check_kind(metadata: &fs::Metadata) -> Result<(), GgufError> {
    if metadata.is_dir() {
        return Err(GgufError::new(Cause::Directory));
    }
    if !metadata.is_file() {
        return Err(GgufError::new(Cause::NotAFile));
    }
    Ok(())
}
