//! Errors of the GGUF reader and writer. Each names the file, the key or tensor, and the byte
//! offset.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use minfer_tensor::DType;

use super::limits::{MAX_ALIGNMENT, MAX_ARRAY_DEPTH, MAX_DIMS, MIN_ALIGNMENT};

/// Why a GGUF file was refused, and where.
///
/// Displays as one line: file, key or tensor, cause, byte offset.
pub struct GgufError(Box<Parts>);

struct Parts {
    path: Option<PathBuf>,
    item: Option<Item>,
    offset: Option<u64>,
    cause: Cause,
}

/// The part of a file that an error is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Item {
    /// The metadata entry of this key.
    Key(String),
    /// The metadata entry at this position, its key not yet known.
    Entry(u64),
    /// The tensor of this name.
    Tensor(String),
    /// The tensor at this position, its name not yet known.
    TensorAt(u64),
}

/// What is wrong.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The operating system refused.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The path names a directory.
    #[error("is a directory, not a file")]
    Directory,
    /// The path names a pipe, device or socket.
    #[error("is not a regular file")]
    NotAFile,
    /// The file has no bytes.
    #[error("the file is empty")]
    Empty,
    /// The file does not start as GGUF does.
    #[error("is not a GGUF file: it starts with {}, not \"GGUF\"{}", shown_bytes(*found), magic_hint(*found))]
    Magic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// The file is big-endian.
    #[error("is a big-endian GGUF file (version {version}); only little-endian files are read")]
    BigEndian {
        /// The version after swapping its bytes.
        version: u32,
    },
    /// The version is not one that this reader knows.
    #[error("GGUF version {found} is not read; versions 2 and 3 are")]
    Version {
        /// The stated version.
        found: u32,
    },
    /// The file ends inside a field.
    #[error("the file is cut short: bytes needed here: {wanted}, bytes left: {left}")]
    Truncated {
        /// Bytes that the field takes.
        wanted: u64,
        /// Bytes until the end of the file.
        left: u64,
    },
    /// The file has become shorter since it was opened.
    #[error(
        "the file was cut short while it was open: it should reach byte {end} at least, and has {length} bytes"
    )]
    CutShort {
        /// The end of the bytes that were wanted.
        end: u64,
        /// Bytes that the file has now.
        length: u64,
    },
    /// Somebody wrote to the file after it had been opened.
    #[error("the file was written to while it was being read, so what was read may be of two files")]
    Changed,
    /// The header takes more than is read.
    #[error("metadata and tensor descriptions take more than the {limit} bytes that are read of them")]
    HeaderTooLong {
        /// Bytes that are read at most.
        limit: u64,
    },
    /// A count is larger than the rest of the file could hold.
    #[error("states {count} {what}; the rest of the file holds at most {} (bytes left: {left})", left / min_bytes)]
    Count {
        /// What is counted.
        what: &'static str,
        /// The stated count.
        count: u64,
        /// Bytes until the end of the file.
        left: u64,
        /// The fewest bytes that one of them takes.
        min_bytes: u64,
    },
    /// A key or tensor name is empty.
    #[error("the name is empty")]
    EmptyName,
    /// A key or tensor name is too long.
    #[error("a name of {length} bytes is longer than the {limit} allowed")]
    NameTooLong {
        /// Bytes of the name.
        length: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// Text is not UTF-8.
    #[error("{what} is not UTF-8 text")]
    NotUtf8 {
        /// Which text.
        what: Text,
    },
    /// Two metadata entries have the same key.
    #[error("the key occurs twice")]
    DuplicateKey,
    /// Two tensors have the same name.
    #[error("the tensor name occurs twice")]
    DuplicateTensor,
    /// A value type id is not defined.
    #[error("value type {id} does not exist")]
    UnknownValueType {
        /// The stated id.
        id: u32,
    },
    /// A boolean is neither 0 nor 1.
    #[error("a boolean is stored as {found}; 0 and 1 are allowed")]
    BadBool {
        /// The stored byte.
        found: u8,
    },
    /// Arrays nest too deep.
    #[error("arrays nest more than {MAX_ARRAY_DEPTH} deep")]
    TooDeep,
    /// A value is not of the type that is needed.
    #[error("has type {found}, and {wanted} is needed")]
    WrongType {
        /// The stored type, spelled out.
        found: String,
        /// What was asked for.
        wanted: &'static str,
    },
    /// An integer does not fit the type that is needed.
    #[error("the value {found}{} does not fit in {wanted}", at_element(*index))]
    OutOfRange {
        /// The stored value.
        found: i128,
        /// Its position, where it is an array's element.
        index: Option<usize>,
        /// What was asked for.
        wanted: &'static str,
    },
    /// `general.alignment` is not usable.
    #[error("the alignment {found} is not a power of two between {MIN_ALIGNMENT} and {MAX_ALIGNMENT}")]
    Alignment {
        /// The stated alignment.
        found: u64,
    },
    /// A tensor has too many dimensions.
    #[error("has {found} dimensions; at most {MAX_DIMS} are allowed")]
    TooManyDims {
        /// The stated count.
        found: u32,
    },
    /// A dimension is zero.
    #[error("dimension {index} is zero")]
    ZeroDim {
        /// Position of the dimension.
        index: usize,
    },
    /// The product of the dimensions, or the size in bytes, is beyond any machine.
    #[error("dimensions {} overflow a 64-bit size", shown_dims(dims))]
    DimsOverflow {
        /// The stated dimensions.
        dims: Vec<u64>,
    },
    /// A tensor type id is not defined.
    #[error("tensor type {id} does not exist")]
    UnknownTensorType {
        /// The stated id.
        id: u32,
    },
    /// The tensor's type is known and cannot be read.
    #[error("has type {name}, which this build does not read")]
    UnsupportedType {
        /// Name of the type.
        name: &'static str,
    },
    /// The first dimension is not a whole number of blocks.
    #[error("the row length {elements} is no multiple of the {name} block length {block_len}")]
    PartialBlock {
        /// Name of the type.
        name: &'static str,
        /// Elements of a row.
        elements: u64,
        /// Elements of a block.
        block_len: u64,
    },
    /// A tensor's offset is not aligned.
    #[error("the data offset {offset} is not a multiple of the alignment {alignment}")]
    Misaligned {
        /// Offset in the data section.
        offset: u64,
        /// The file's alignment.
        alignment: u64,
    },
    /// A tensor's bytes are not all in the file.
    #[error(
        "its data (offset {offset}, length {bytes}) passes the end of the file's data section (length {available})"
    )]
    PastEnd {
        /// Offset in the data section.
        offset: u64,
        /// Bytes of the tensor.
        bytes: u64,
        /// Bytes of the data section.
        available: u64,
    },
    /// Two tensors share bytes.
    #[error("its data overlaps that of tensor {}", shown_name(other))]
    Overlap {
        /// Name of the other tensor.
        other: String,
    },
    /// No tensor has this name.
    #[error("the file has no such tensor")]
    NoSuchTensor,
    /// A part of a split model came without its path, by which the others are found.
    #[error("is part {number} of {count} of a split model, which must be opened by its path")]
    PartAlone {
        /// Its number, from 1.
        number: u64,
        /// The number of parts.
        count: u64,
    },
    /// A part's name does not say which part it is.
    #[error(
        "is part {number} of {count} of a split model; its name must end in -{number:05}-of-{count:05}.gguf, so that the \
         other parts are found"
    )]
    PartName {
        /// Its number, from 1.
        number: u64,
        /// The number of parts.
        count: u64,
    },
    /// `split.no` is not below `split.count`.
    #[error("part {number} of {count} cannot be")]
    PartNumber {
        /// The stated number, from 1.
        number: u64,
        /// The stated number of parts.
        count: u64,
    },
    /// A part is not where its name says.
    #[error("part {number} of {count} of the model is missing")]
    MissingPart {
        /// Its number, from 1.
        number: u64,
        /// The number of parts.
        count: u64,
    },
    /// A part's metadata is another part's.
    #[error("is named as part {wanted} and says that it is part {}", stated_part(*found))]
    WrongPart {
        /// The number in its name, from 1.
        wanted: u64,
        /// Its own number and count, where it states them.
        found: Option<(u64, u64)>,
    },
    /// Two parts state different values.
    #[error("differs from that of {first}: the parts are not of one model")]
    PartDiffers {
        /// Name of the first part.
        first: String,
    },
    /// The parts have not the number of tensors that they state.
    #[error("the stated number of tensors in all parts is {stated}, but the parts have {found}")]
    SplitTensors {
        /// The stated number.
        stated: u64,
        /// Tensors of all parts.
        found: u64,
    },
    /// (Writer) GGUF cannot store this type.
    #[error("type {dtype} cannot be stored in GGUF")]
    NotStorable {
        /// The type.
        dtype: DType,
    },
    /// (Writer) The bytes given are not the size of the tensor.
    #[error("takes {wanted} bytes, and {found} were given")]
    TensorBytes {
        /// Bytes of the tensor.
        wanted: u64,
        /// Bytes that were given.
        found: u64,
    },
    /// (Writer) The data of another tensor is due.
    #[error("the data of tensor {} is due here", shown_name(expected))]
    TensorOrder {
        /// Name of the tensor whose data comes next.
        expected: String,
    },
    /// (Writer) All announced tensors are already complete.
    #[error("all announced tensors have their data")]
    NoTensorDue,
}

/// A text of the file that must be UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Text {
    /// A metadata key.
    Key,
    /// A tensor name.
    TensorName,
    /// A string value.
    Value,
    /// The string at this position of an array.
    Element(usize),
}

impl GgufError {
    /// What is wrong.
    pub fn cause(&self) -> &Cause {
        &self.0.cause
    }

    /// The file, when it was opened by path.
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    /// The key or tensor, where the error is about one.
    pub fn item(&self) -> Option<&Item> {
        self.0.item.as_ref()
    }

    /// Offset of the offending field in the file, where there is one.
    pub fn offset(&self) -> Option<u64> {
        self.0.offset
    }

    pub(super) fn new(cause: impl Into<Cause>) -> Self {
        GgufError(Box::new(Parts { path: None, item: None, offset: None, cause: cause.into() }))
    }

    pub(super) fn at(mut self, offset: u64) -> Self {
        self.0.offset.get_or_insert(offset);
        self
    }

    pub(super) fn with_item(mut self, item: Item) -> Self {
        self.0.item.get_or_insert(item);
        self
    }

    pub(super) fn key(self, key: &str) -> Self {
        self.with_item(Item::Key(key.to_owned()))
    }

    pub(super) fn tensor(self, name: &str) -> Self {
        self.with_item(Item::Tensor(name.to_owned()))
    }

    pub(super) fn in_file(mut self, path: Option<&Path>) -> Self {
        if self.0.path.is_none() {
            self.0.path = path.map(Path::to_owned);
        }
        self
    }
}

impl fmt::Display for GgufError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.0.path {
            write!(out, "{}: ", one_line(&path.to_string_lossy()))?;
        }
        if let Some(item) = &self.0.item {
            write!(out, "{item}: ")?;
        }
        write!(out, "{}", self.0.cause)?;
        match self.0.offset {
            Some(offset) => write!(out, " (at byte {offset})"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for GgufError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "GgufError({self})")
    }
}

impl From<io::Error> for GgufError {
    fn from(error: io::Error) -> Self {
        GgufError::new(error)
    }
}

impl std::error::Error for GgufError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.cause {
            Cause::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Item::Key(key) => write!(out, "key {}", shown_name(key)),
            Item::Entry(index) => write!(out, "metadata entry {index}"),
            Item::Tensor(name) => write!(out, "tensor {}", shown_name(name)),
            Item::TensorAt(index) => write!(out, "tensor number {index}"),
        }
    }
}

impl fmt::Display for Text {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Text::Key => out.write_str("the key"),
            Text::TensorName => out.write_str("the tensor name"),
            Text::Value => out.write_str("the string"),
            Text::Element(index) => write!(out, "string {index} of the array"),
        }
    }
}

/// A quoted name on one line, cut where it is absurdly long.
pub(super) fn shown_name(name: &str) -> String {
    const SHOWN: usize = 96;
    match name.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("{:?}...", &name[..cut]),
        None => format!("{name:?}"),
    }
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

fn shown_bytes(bytes: [u8; 4]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

fn shown_dims(dims: &[u64]) -> String {
    dims.iter().map(u64::to_string).collect::<Vec<_>>().join(" x ")
}

fn stated_part(found: Option<(u64, u64)>) -> String {
    found.map_or_else(|| "of nothing".to_owned(), |(number, count)| format!("{number} of {count}"))
}

fn at_element(index: Option<usize>) -> String {
    index.map(|index| format!(" at element {index}")).unwrap_or_default()
}

/// What a file with another well-known beginning is.
fn magic_hint(found: [u8; 4]) -> &'static str {
    match &found {
        b"lmgg" | b"fmgg" | b"tjgg" | b"algg" => " (a GGML file, the format before GGUF)",
        b"vers" => " (a Git LFS pointer, not the file itself)",
        b"<!DO" | b"<!do" | b"<htm" => " (a web page)",
        b"PK\x03\x04" => " (a zip archive, perhaps a PyTorch checkpoint)",
        _ => "",
    }
}
