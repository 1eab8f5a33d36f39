//! Session files: conversations with their KV rows, to continue in another process.
//!
//! ```text
//! magic "MINFSESS" | version u32 | header length u32 | length of the whole file u64
//! header: identity of model and template | groups of layers | for each sequence its tokens,
//!         removed ranges, runs of rows, and the caller's own bytes
//! xxh3 of everything so far, u64
//! rows: for each sequence, layer, K then V: canonical rows [position][head][dim] of its runs,
//!       in order
//! xxh3 of everything so far, u64
//! ```
//!
//! All numbers are little-endian. Rows are canonical, so a file made under one layout, block size
//! and context serves another. [`SessionFile::open`] reads the header, [`SessionFile::verify`] the
//! rows; nothing is used before its sum is right. [`save()`] writes to another name and renames, so
//! that there is a whole file under the name at every moment.

mod codec;
mod file;
mod header;
mod save;

use std::ops::Range;
use std::path::PathBuf;

use minfer_graph::backend::KvRows;
use minfer_graph::{EVICTED, KvRun, KvSide, KvSpec};

pub use file::{SessionFile, SessionRows};
pub(crate) use save::write;
pub use save::{RowSource, check_target, save};

use super::restore::{LayoutRun, SequenceLayout};
use crate::history::tokens_left;

/// The version that is written, and the only one that is read.
pub const SESSION_VERSION: u32 = 1;

/// Bytes of a header at most: those of 60 million tokens.
pub(crate) const MOST_HEADER_BYTES: u32 = 256 << 20;
/// Sequences of a file at most.
pub(crate) const MOST_SEQUENCES: usize = 1 << 16;

/// What saved rows depend on besides their tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SessionIdentity {
    /// Fingerprint of weights, graph and rotation.
    pub model: u128,
    /// Fingerprint of the chat template; 0 where there is none.
    pub template: u128,
}

/// A sequence as a file holds it, without its rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SavedSequence {
    /// Every token, including those whose rows were removed.
    pub tokens: Vec<u32>,
    /// Indices of `tokens` whose rows were removed, ascending.
    pub removed: Vec<Range<u32>>,
    /// Rows: tokens that are neither removed nor past the last fed one. A window's group may hold
    /// fewer.
    pub length: u32,
    /// For each group the rows that it holds.
    pub runs: Vec<Vec<RowRun>>,
    /// Bytes of the caller's own.
    pub host: Vec<u8>,
}

impl SavedSequence {
    /// What a store needs to allocate its cells.
    pub fn layout(&self) -> SequenceLayout {
        let mut tokens = tokens_left(&self.tokens, &self.removed);
        tokens.truncate(self.length as usize);
        SequenceLayout {
            tokens,
            shifted: !self.removed.is_empty(),
            groups: self.runs.iter().map(|runs| self.layout_runs(runs)).collect(),
        }
    }

    fn layout_runs(&self, runs: &[RowRun]) -> Vec<LayoutRun> {
        let (mut shape, mut next) = (Vec::new(), 0);
        let mut push = |rows, rope_offset, evicted| {
            if rows > 0 {
                shape.push(LayoutRun { rows, rope_offset, evicted });
            }
        };
        for run in runs {
            push(run.start - next, 0, true);
            push(run.rows, run.rope_offset, false);
            next = run.start + run.rows;
        }
        push(self.length - next, 0, true);
        shape
    }
}

/// The runs of rows that a sequence holds in one group. Adjacent runs with the same rope offset are
/// merged.
pub fn row_runs(rows: &[KvRun]) -> Vec<RowRun> {
    let mut runs: Vec<RowRun> = Vec::new();
    for run in rows.iter().filter(|run| run.block != EVICTED) {
        match runs.last_mut() {
            Some(last) if last.start + last.rows == run.start && last.rope_offset == run.rope_offset => {
                last.rows += run.rows;
            }
            _ => runs.push(RowRun { start: run.start, rows: run.rows, rope_offset: run.rope_offset }),
        }
    }
    runs
}

/// Consecutive rows of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RowRun {
    /// Position of the first row.
    pub start: u32,
    /// Number of rows.
    pub rows: u32,
    /// Their K was rotated at their position plus this.
    pub rope_offset: u32,
}

/// Why a session file cannot be written or used. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// An operating system error.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// The cause.
        source: std::io::Error,
    },
    /// Not a session file.
    #[error("it is not a session file")]
    Foreign,
    /// The path is a folder.
    #[error("it is a folder")]
    Folder,
    /// The folder does not exist.
    #[error("the folder {} does not exist", .0.display())]
    NoFolder(PathBuf),
    /// The path is a device, a pipe or a socket.
    #[error("it is not a regular file")]
    NotRegular,
    /// The file is read-only.
    #[error("it is read-only")]
    ReadOnly,
    /// The header is longer than a header may be.
    #[error("its header length {found} is over {MOST_HEADER_BYTES}")]
    LongHeader {
        /// Its length.
        found: u64,
    },
    /// A version that this build does not read.
    #[error("it is of version {found}, this build reads version {SESSION_VERSION}")]
    Version {
        /// In the file.
        found: u32,
    },
    /// The file ends too early.
    #[error("it is truncated: its length is {found} of {expected}")]
    Truncated {
        /// Its length.
        found: u64,
        /// The length that it says.
        expected: u64,
    },
    /// Bytes follow the end of the file.
    #[error("data follows its end (bytes: {0})")]
    Trailing(u64),
    /// A checksum does not match.
    #[error("it is damaged: the sum over {part} does not match")]
    Damaged {
        /// `its header` or `the whole file`.
        part: &'static str,
    },
    /// Checksums match, but the numbers contradict each other.
    #[error("it contradicts itself: {0}")]
    Contradiction(String),
    /// Made with another model.
    #[error("it was made with another model, or with other rope or metadata settings")]
    Model,
    /// Made with another template.
    #[error("it was made with another chat template")]
    Template,
    /// Rows in another KV format.
    #[error("its rows are stored as {found}, this cache holds {wanted}")]
    Format {
        /// K and V in the file.
        found: String,
        /// K and V here.
        wanted: String,
    },
    /// Other layers or dims.
    #[error("its layers are not those of this model")]
    Shape,
    /// The sequence is longer than the context.
    #[error("it holds a sequence of length {length}, the context has {n_ctx}")]
    TooLong {
        /// Rows of the sequence.
        length: u32,
        /// Positions of the context.
        n_ctx: u32,
    },
    /// The conversation was closed, or never opened.
    #[error("there is no such conversation")]
    NoSession,
    /// A running request uses the conversation.
    #[error("the conversation is in use")]
    Busy,
    /// Its rows are swapped out and do not fit the cache now.
    #[error("its rows cannot be brought back: {0}")]
    NotInCache(String),
    /// Its rows left the cache before all of them were copied.
    #[error("running requests needed the memory of its rows before all of them were copied; try again")]
    Interrupted,
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
    /// No room in the cache.
    #[error(transparent)]
    Store(#[from] super::StoreError),
    /// The arena failed.
    #[error(transparent)]
    Backend(#[from] minfer_graph::BackendError),
}

impl SessionError {
    fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> SessionError {
        move |source| SessionError::Io { what, source }
    }
}

/// The layers of a spec as (group, index in the group), in the model's order.
fn layers(spec: &KvSpec) -> Vec<(usize, usize)> {
    let mut layers: Vec<(u32, usize, usize)> = Vec::new();
    for (group, numbers) in spec.groups.iter().enumerate() {
        layers.extend(numbers.layers.iter().enumerate().map(|(index, &layer)| (layer, group, index)));
    }
    layers.sort_unstable();
    layers.into_iter().map(|(_, group, index)| (group, index)).collect()
}

/// For each group the blocks and offsets that hold the rows of a sequence's runs, in order.
pub type Places = Vec<Vec<(u32, Range<u32>)>>;

/// Where a sequence's rows lie in a store, without those that a window has released.
pub fn places(store: &super::Store, id: super::SequenceId) -> Places {
    let place = |run: KvRun| (run.block, run.offset..run.offset + run.rows);
    let held = |group: usize| {
        store.rows(group, id).into_iter().filter(|run| run.block != EVICTED).map(place).collect()
    };
    (0..store.groups()).map(held).collect()
}

/// The pieces that rows are copied in, in the order of a file, with the bytes of each.
pub(crate) fn pieces(spec: &KvSpec, places: &Places) -> impl Iterator<Item = (KvRows, usize)> {
    let sides = sides(spec);
    let mut cursor = Cursor::default();
    std::iter::from_fn(move || cursor.next(spec, &sides, places))
}

/// The layers of a spec in the model's order, as (group, index in the group), each with both sides.
pub(crate) fn sides(spec: &KvSpec) -> Vec<(usize, usize, KvSide)> {
    let sides = |(group, index)| [(group, index, KvSide::K), (group, index, KvSide::V)];
    layers(spec).into_iter().flat_map(sides).collect()
}

/// How many of a sequence's pieces have been copied. Blocks may move between two pieces.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cursor {
    side: usize,
    run: usize,
}

impl Cursor {
    /// The next piece and its bytes.
    pub(crate) fn next(
        &mut self,
        spec: &KvSpec,
        sides: &[(usize, usize, KvSide)],
        places: &Places,
    ) -> Option<(KvRows, usize)> {
        loop {
            let &(group, layer_index, side) = sides.get(self.side)?;
            if let Some((block, rows)) = places[group].get(self.run) {
                self.run += 1;
                let bytes = rows.len() * spec.groups[group].row_bytes(side) as usize;
                return Some((KvRows { group, layer_index, side, block: *block, rows: rows.clone() }, bytes));
            }
            *self = Cursor { side: self.side + 1, run: 0 };
        }
    }
}

/// Bytes of all rows of a sequence.
fn row_bytes(spec: &KvSpec, sequence: &SavedSequence) -> u64 {
    let groups = spec.groups.iter().zip(&sequence.runs);
    groups.map(|(group, runs)| group.bytes_per_token() * rows_of(runs)).sum()
}

fn rows_of(runs: &[RowRun]) -> u64 {
    runs.iter().map(|run| u64::from(run.rows)).sum()
}

#[cfg(test)]
mod tests;
