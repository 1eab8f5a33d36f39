//! Errors of the store.

use minfer_graph::BackendError;

/// Why an operation failed. Nothing has changed then, except that cached blocks may have been
/// evicted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// More blocks than are free or cached.
    #[error(
        "KV sequence {sequence}: {wanted} more blocks for positions {from}..{to}, but {free} of {total} are free"
    )]
    NoBlocks {
        /// The sequence.
        sequence: u64,
        /// Blocks that it lacks.
        wanted: u32,
        /// Blocks that no sequence owns.
        free: u32,
        /// All blocks of the group.
        total: u32,
        /// First position to be stored.
        from: u32,
        /// One past the last position to be stored.
        to: u32,
    },
    /// The arena could not bring a block into memory, or could not copy rows into it.
    #[error("KV sequence {sequence}: positions {from}..{to}: {source}")]
    Refused {
        /// The sequence.
        sequence: u64,
        /// First position to be stored.
        from: u32,
        /// One past the last position to be stored.
        to: u32,
        /// The arena's answer.
        source: BackendError,
    },
    /// The sequence has fewer tokens than it is to be cut to.
    #[error("KV sequence {sequence} has length {length} and cannot be cut to {wanted}")]
    TooShort {
        /// The sequence.
        sequence: u64,
        /// Its tokens.
        length: u32,
        /// Tokens that were to remain.
        wanted: u32,
    },
    /// Tokens to be removed that the sequence does not have.
    #[error("KV sequence {sequence} has length {length}: {from}..{to} cannot be removed")]
    NoSuchTokens {
        /// The sequence.
        sequence: u64,
        /// Its tokens.
        length: u32,
        /// First token to be removed.
        from: u32,
        /// One past the last token to be removed.
        to: u32,
    },
    /// The next token of the shortened sequence would see rows that a window has released.
    #[error(
        "KV sequence {sequence} cannot have {length} tokens: the next one sees position {position}, whose rows \
         a window of {window} has released"
    )]
    OutOfSight {
        /// The sequence.
        sequence: u64,
        /// Tokens that were to remain.
        length: u32,
        /// The first position that would be missed, after the change.
        position: u32,
        /// The window of the group.
        window: u32,
    },
    /// More distinct rope offsets than attention has memory for.
    #[error("rows with {found} rope offsets, where those of a sequence have {most} at most")]
    TooManyOffsets {
        /// Distinct rope offsets beside 0.
        found: usize,
        /// As many as a sequence may have.
        most: u32,
    },
    /// A layout that no sequence of this store can have.
    #[error("these rows cannot be restored: {0}")]
    BadLayout(String),
    /// The arena could not take or fill a block that another was to move to.
    #[error("block {from} of KV group {group} cannot move to {to}: {source}")]
    Unmovable {
        /// The group.
        group: usize,
        /// The block.
        from: u32,
        /// Where it was to be.
        to: u32,
        /// The arena's answer.
        source: BackendError,
    },
}
