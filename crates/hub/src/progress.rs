//! Progress reports of a pull.

/// What a pull is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Another process pulls the same file; this one waits for it.
    Waiting,
    /// Bytes that are already on disk are checked.
    Checking,
    /// A package is being downloaded.
    Fetching,
    /// The model's bytes are written from the package.
    Unpacking,
}

/// One report of a pull. Sizes are bytes of the model's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// Which part it is done for, counted from 1; 0 before the first.
    pub part: u32,
    /// How many parts there are; 0 where that is not known yet.
    pub parts: u32,
    /// Bytes done in this stage, earlier parts included. While fetching, those of the package as
    /// far as it has come.
    pub bytes: u64,
    /// The file's size, where it is known.
    pub total: Option<u64>,
}

/// The caller's callback.
pub(crate) type Report<'a> = dyn FnMut(Progress) + 'a;
