//! Reading a session file: the header first, then the rows.

use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use minfer_graph::KvSpec;
use minfer_graph::backend::KvArena;
use xxhash_rust::xxh3::Xxh3;

use super::header::Header;
use super::save::{FRONT, MAGIC, SUM, open_regular};
use super::{
    MOST_HEADER_BYTES, Places, SESSION_VERSION, SavedSequence, SessionError, SessionIdentity, pieces, places,
    row_bytes,
};
use crate::kv::{SequenceId, Store};

/// Bytes per read.
const PIECE: usize = 1 << 20;

/// A session file whose header has been read and checked. [`verify`](Self::verify) reads its rows.
pub struct SessionFile {
    file: File,
    header: Header,
    /// Checksum of everything before the rows.
    sum: Xxh3,
    /// Offset of the first row.
    rows_at: u64,
    length: u64,
}

impl SessionFile {
    /// Reads the header and checks its checksum and the stated file length. Time and memory depend
    /// on the header only, not on the length of the file.
    ///
    /// # Errors
    /// The file cannot be read, is no session file, has another version, is truncated, has trailing
    /// bytes, or its header is damaged.
    pub fn open(path: &Path) -> Result<SessionFile, SessionError> {
        let mut file = open_regular(path)?;
        let metadata = file.metadata().map_err(SessionError::io("opening it"))?;
        let front = Front::read(&mut file, metadata.len())?;
        let mut sum = Xxh3::new();
        sum.update(&front.bytes);
        let mut bytes = vec![0; front.header as usize];
        file.read_exact(&mut bytes).map_err(SessionError::io("reading it"))?;
        sum.update(&bytes);
        check_sum(&mut file, &mut sum, "its header")?;
        let rows_at = FRONT + u64::from(front.header) + SUM;
        Ok(SessionFile { header: Header::decode(&bytes)?, file, sum, rows_at, length: front.length })
    }

    /// Whether a cache of `spec` under a model and a template can take the rows.
    ///
    /// # Errors
    /// It was made with another model, template, shape or format, or its length does not fit its
    /// rows.
    pub fn check(&self, identity: SessionIdentity, spec: &KvSpec) -> Result<(), SessionError> {
        self.header.check(identity, spec)?;
        let rows: u64 = self.header.sequences.iter().map(|sequence| row_bytes(spec, sequence)).sum();
        if self.rows_at + rows + SUM != self.length {
            return Err(SessionError::Contradiction(format!("{rows} bytes of rows")));
        }
        Ok(())
    }

    /// The sequences without their rows.
    pub fn sequences(&self) -> &[SavedSequence] {
        &self.header.sequences
    }

    /// Reads the rows in pieces and checks the checksum of the whole file.
    ///
    /// # Errors
    /// It cannot be read or is damaged.
    pub fn verify(mut self) -> Result<SessionRows, SessionError> {
        read_through(&mut self.file, &mut self.sum, self.length - self.rows_at - SUM)?;
        check_sum(&mut self.file, &mut self.sum, "the whole file")?;
        let SessionFile { file, header, rows_at, length, .. } = self;
        Ok(SessionRows { file, header, rows_at, length })
    }
}

impl fmt::Debug for SessionFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SessionFile").field("header", &self.header).finish_non_exhaustive()
    }
}

/// A session file that was read to its end and has the right checksums.
#[derive(Debug)]
pub struct SessionRows {
    file: File,
    header: Header,
    rows_at: u64,
    length: u64,
}

impl SessionRows {
    /// Bytes of the file.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// The sequences without their rows.
    pub fn sequences(&self) -> &[SavedSequence] {
        &self.header.sequences
    }

    /// Reads the rows of one sequence in order, at most so many bytes at a time, for as long as `take`
    /// wants them.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn send_rows(
        &self,
        sequence: usize,
        spec: &KvSpec,
        most: usize,
        mut take: impl FnMut(Vec<u8>) -> bool,
    ) -> Result<(), SessionError> {
        let mut file = self.at(sequence, spec)?;
        let mut left = row_bytes(spec, &self.sequences()[sequence]);
        while left > 0 {
            let mut bytes = vec![0; left.min(most as u64) as usize];
            file.read_exact(&mut bytes).map_err(SessionError::io("reading it"))?;
            left -= bytes.len() as u64;
            if !take(bytes) {
                break;
            }
        }
        Ok(())
    }

    /// The file at the first row of a sequence.
    fn at(&self, sequence: usize, spec: &KvSpec) -> Result<BufReader<&File>, SessionError> {
        let before: u64 = self.sequences()[..sequence].iter().map(|other| row_bytes(spec, other)).sum();
        let mut file = BufReader::with_capacity(PIECE, &self.file);
        file.seek(SeekFrom::Start(self.rows_at + before)).map_err(SessionError::io("reading it"))?;
        Ok(file)
    }

    /// Fills a sequence that was [restored](Store::restore) for one of the file's, and publishes
    /// it. Drops it on an error.
    ///
    /// # Errors
    /// As [`read_rows`](Self::read_rows).
    pub fn fill(
        &self,
        sequence: usize,
        store: &mut Store,
        arena: &mut dyn KvArena,
        id: SequenceId,
    ) -> Result<(), SessionError> {
        let read = self.read_rows(sequence, arena, &places(store, id));
        match read {
            Ok(()) => store.publish(id),
            Err(_) => store.drop_sequence(arena, id),
        }
        read
    }

    /// Writes the rows of one sequence to an arena. `places` take the rows of its runs. The file
    /// was checked against the arena's spec.
    ///
    /// # Errors
    /// The file cannot be read, or the arena failed; the rows hold nothing of use then.
    pub fn read_rows(
        &self,
        sequence: usize,
        arena: &mut dyn KvArena,
        places: &Places,
    ) -> Result<(), SessionError> {
        let spec = arena.spec().clone();
        let mut file = self.at(sequence, &spec)?;
        let mut bytes = Vec::new();
        for (rows, count) in pieces(&spec, places) {
            bytes.resize(count, 0);
            file.read_exact(&mut bytes).map_err(SessionError::io("reading it"))?;
            arena.write_rows(&rows, &bytes)?;
        }
        Ok(())
    }
}

/// The fixed-size part before the header.
struct Front {
    bytes: [u8; FRONT as usize],
    header: u32,
    length: u64,
}

impl Front {
    fn read(file: &mut File, length: u64) -> Result<Front, SessionError> {
        let mut bytes = [0; FRONT as usize];
        let there = (length.min(FRONT)) as usize;
        file.read_exact(&mut bytes[..there]).map_err(SessionError::io("reading it"))?;
        let (magic, rest) = bytes.split_first_chunk::<8>().expect("longer than the magic");
        let compared = there.min(magic.len());
        if compared == 0 || magic[..compared] != MAGIC[..compared] {
            return Err(SessionError::Foreign);
        }
        if length < FRONT + 2 * SUM {
            return Err(SessionError::Truncated { found: length, expected: FRONT + 2 * SUM });
        }
        let number = |at: usize| u32::from_le_bytes(*rest[at..].first_chunk().expect("inside of the front"));
        let (version, header) = (number(0), number(4));
        let said = u64::from(number(8)) | u64::from(number(12)) << 32;
        if version != SESSION_VERSION {
            return Err(SessionError::Version { found: version });
        }
        match length.cmp(&said) {
            std::cmp::Ordering::Less => Err(SessionError::Truncated { found: length, expected: said }),
            std::cmp::Ordering::Greater => Err(SessionError::Trailing(length - said)),
            std::cmp::Ordering::Equal if FRONT + u64::from(header) + 2 * SUM > said => {
                Err(SessionError::Contradiction("its header is longer than the file".to_owned()))
            }
            std::cmp::Ordering::Equal if header > MOST_HEADER_BYTES => {
                Err(SessionError::LongHeader { found: u64::from(header) })
            }
            std::cmp::Ordering::Equal => Ok(Front { bytes, header, length: said }),
        }
    }
}

/// Compares the checksum so far with the one that follows. Later checksums cover both.
fn check_sum(file: &mut File, sum: &mut Xxh3, part: &'static str) -> Result<(), SessionError> {
    let mut written = [0; SUM as usize];
    file.read_exact(&mut written).map_err(SessionError::io("reading it"))?;
    if u64::from_le_bytes(written) != sum.digest() {
        return Err(SessionError::Damaged { part });
    }
    sum.update(&written);
    Ok(())
}

fn read_through(file: &mut File, sum: &mut Xxh3, bytes: u64) -> Result<(), SessionError> {
    let (mut left, mut piece) = (bytes, vec![0; bytes.min(PIECE as u64) as usize]);
    while left > 0 {
        let piece = &mut piece[..left.min(PIECE as u64) as usize];
        file.read_exact(piece).map_err(SessionError::io("reading it"))?;
        sum.update(piece);
        left -= piece.len() as u64;
    }
    Ok(())
}
