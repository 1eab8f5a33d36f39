use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use minfer_tensor::DType;

use super::error::{Cause, GgufError};
use super::metadata::Metadata;
use super::names::NameIndex;
use super::parse::{Parsed, parse};
use super::split;
use super::tensor::Tensor;
use super::tensor_type::TensorType;
use crate::mapped::Mapped;

/// A GGUF file whose header has been read and checked.
///
/// The file must not be modified while it is open; replacing it by a rename is safe.
#[derive(Debug)]
pub struct File {
    path: Option<PathBuf>,
    /// At least one; the first has the model's metadata.
    parts: Vec<Part>,
    /// Of all parts, in order.
    tensors: Vec<Tensor>,
    tensor_names: NameIndex,
}

/// One of the files of a model: the only one where it is not split.
#[derive(Debug)]
pub struct Part {
    path: Option<PathBuf>,
    bytes: Bytes,
    parsed: Parsed,
    n_tensors: usize,
}

impl Part {
    /// Maps a file and reads its header.
    pub(super) fn open(path: &Path) -> Result<Part, GgufError> {
        Self::map(path).map_err(|error| error.in_file(Some(path)))
    }

    /// Where the file was opened; none for bytes in memory.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Size of the file, in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Number of tensors that it holds.
    pub fn n_tensors(&self) -> usize {
        self.n_tensors
    }

    /// The metadata of this file alone.
    pub fn metadata(&self) -> Metadata<'_> {
        Metadata::new(&self.bytes, &self.parsed, self.path())
    }

    /// Hands over the tensors, marked as those of part `index`.
    pub(super) fn take_tensors(&mut self, index: usize) -> Vec<Tensor> {
        let mut tensors = std::mem::take(&mut self.parsed.tensors);
        tensors.iter_mut().for_each(|tensor| tensor.part = index);
        tensors
    }

    fn new(path: Option<&Path>, bytes: Bytes) -> Result<Part, GgufError> {
        let parsed = parse(&bytes)?;
        Ok(Part { path: path.map(Path::to_owned), bytes, n_tensors: parsed.tensors.len(), parsed })
    }

    fn map(path: &Path) -> Result<Part, GgufError> {
        // The kind is looked at first: opening a pipe would wait for a writer.
        check_kind(&fs::metadata(path)?)?;
        let handle = fs::File::open(path)?;
        let metadata = handle.metadata()?;
        check_kind(&metadata)?;
        if metadata.len() == 0 {
            return Err(GgufError::new(Cause::Empty));
        }
        Part::new(Some(path), Bytes::Mapped(Mapped::new(&handle)?))
    }
}

#[derive(Debug)]
enum Bytes {
    Mapped(Mapped),
    Owned(Vec<u8>),
}

impl File {
    /// Maps a file, with all other parts where it is one of a split model, and reads the headers. No tensor data is touched.
    ///
    /// # Errors
    /// A file cannot be opened, its header breaks a rule of the format, or the parts do not make one model. The error names
    /// the file.
    pub fn open(path: impl AsRef<Path>) -> Result<File, GgufError> {
        let path = path.as_ref();
        let parts = split::with_others(Part::open(path)?, path)?;
        Self::new(Some(path), parts)
    }

    /// Reads the header of a file that is already in memory.
    ///
    /// # Errors
    /// The header breaks a rule of the format, or the file is a part of a split model.
    pub fn parse(bytes: impl Into<Vec<u8>>) -> Result<File, GgufError> {
        let part = Part::new(None, Bytes::Owned(bytes.into()))?;
        split::refuse_part(&part)?;
        Self::new(None, vec![part])
    }

    fn new(path: Option<&Path>, mut parts: Vec<Part>) -> Result<File, GgufError> {
        let (tensors, tensor_names) = split::merge(&mut parts)?;
        Ok(File { path: path.map(Path::to_owned), parts, tensors, tensor_names })
    }

    /// The files that the model is made of, in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Where the file was opened: the part that was named, of several. None for bytes in memory.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Version of the format, 2 or 3.
    pub fn version(&self) -> u32 {
        self.parts[0].parsed.version
    }

    /// Alignment of tensor data in the first part, in bytes.
    pub fn alignment(&self) -> u64 {
        self.parts[0].parsed.alignment
    }

    /// Size of the whole file, or of all parts, in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.parts.iter().map(Part::total_bytes).sum()
    }

    /// Where the data section of the first part starts. A file without tensors may end before.
    pub fn data_start(&self) -> u64 {
        self.parts[0].parsed.data_start
    }

    /// The metadata, which the first part has.
    pub fn metadata(&self) -> Metadata<'_> {
        self.parts[0].metadata()
    }

    /// The tensors, in file order.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensor of a name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        let name_of = |position: usize| self.tensors[position].name().as_bytes();
        self.tensor_names.find(name.as_bytes(), name_of).map(|position| &self.tensors[position])
    }

    /// The tensor of a name that must exist.
    ///
    /// # Errors
    /// The file has no such tensor.
    pub fn require(&self, name: &str) -> Result<&Tensor, GgufError> {
        self.tensor(name).ok_or_else(|| self.refuse(name, Cause::NoSuchTensor))
    }

    /// The element type of a tensor that must be readable.
    ///
    /// # Errors
    /// This build does not read the tensor's type.
    pub fn dtype(&self, tensor: &Tensor) -> Result<DType, GgufError> {
        match tensor.tensor_type() {
            TensorType::Known(dtype) => Ok(dtype),
            TensorType::Other { name, .. } => {
                Err(self.refuse(tensor.name(), Cause::UnsupportedType { name }))
            }
        }
    }

    /// The stored bytes of a tensor of this file.
    ///
    /// # Panics
    /// The tensor is another file's and lies beyond the end of this one.
    pub fn bytes(&self, tensor: &Tensor) -> &[u8] {
        let part = self.parts.get(tensor.part);
        part.and_then(|part| part.bytes.get(tensor.range())).expect("the tensor is one of this file's")
    }

    /// Tells the kernel that a tensor's bytes will soon be read. A hint that may do nothing.
    pub fn will_need(&self, tensor: &Tensor) {
        if let Bytes::Mapped(mapped) = &self.parts[tensor.part].bytes {
            mapped.will_need(tensor.range());
        }
    }

    /// Tells the kernel that a tensor's bytes need not stay in memory. Reading them again is allowed and brings them
    /// back from the file. A hint that may do nothing.
    pub fn dont_need(&self, tensor: &Tensor) {
        if let Bytes::Mapped(mapped) = &self.parts[tensor.part].bytes {
            mapped.dont_need(tensor.range());
        }
    }

    fn refuse(&self, tensor: &str, cause: Cause) -> GgufError {
        GgufError::new(cause).tensor(tensor).in_file(self.path())
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(mapped) => mapped,
            Bytes::Owned(bytes) => bytes,
        }
    }
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
