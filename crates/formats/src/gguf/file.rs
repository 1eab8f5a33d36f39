//! An open GGUF file: checked metadata and tensor entries; tensor bytes are read on demand.

use std::path::{Path, PathBuf};

use minfer_tensor::DType;

use super::error::{Cause, GgufError};
use super::metadata::Metadata;
use super::names::NameIndex;
use super::parse::Parsed;
use super::source::Source;
use super::split;
use super::tensor::Tensor;
use super::tensor_type::TensorType;

/// A GGUF file whose header has been read and checked.
///
/// The tensors' bytes stay in the file until they are asked for. A file that is modified while it
/// is open gives bytes of both contents or errors, which [`check_unchanged`](File::check_unchanged)
/// tells; replacing it by a rename is safe.
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
    source: Source,
    parsed: Parsed,
    n_tensors: usize,
}

impl Part {
    /// Opens a file and reads its header.
    pub(super) fn open(path: &Path) -> Result<Part, GgufError> {
        let opened = Source::open(path).map_err(|error| error.in_file(Some(path)))?;
        Ok(Self::new(Some(path), opened))
    }

    /// Where the file was opened; none for bytes in memory.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Size of the file, in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.source.len()
    }

    /// Number of tensors that it holds.
    pub fn n_tensors(&self) -> usize {
        self.n_tensors
    }

    /// The metadata of this file alone.
    pub fn metadata(&self) -> Metadata<'_> {
        Metadata::new(self.source.header(), &self.parsed, self.path())
    }

    /// Hands over the tensors, marked as those of part `index`.
    pub(super) fn take_tensors(&mut self, index: usize) -> Vec<Tensor> {
        let mut tensors = std::mem::take(&mut self.parsed.tensors);
        tensors.iter_mut().for_each(|tensor| tensor.part = index);
        tensors
    }

    fn new(path: Option<&Path>, (source, parsed): (Source, Parsed)) -> Part {
        Part { path: path.map(Path::to_owned), source, n_tensors: parsed.tensors.len(), parsed }
    }
}

impl File {
    /// Opens a file, with all other parts where it is one of a split model, and reads the headers.
    /// No tensor data is touched.
    ///
    /// # Errors
    /// A file cannot be opened, its header breaks a rule of the format, or the parts do not make
    /// one model. The error names the file.
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
        let part = Part::new(None, Source::memory(bytes.into())?);
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

    /// Copies stored bytes of a tensor of this file, those from its `offset` on. Any number of
    /// threads may read at once.
    ///
    /// # Errors
    /// The system refused, or the file has become shorter.
    ///
    /// # Panics
    /// The tensor has not so many bytes, or it is another file's and lies beyond the end of this
    /// one.
    pub fn read(&self, tensor: &Tensor, offset: u64, target: &mut [u8]) -> Result<(), GgufError> {
        let left = tensor.byte_len().checked_sub(offset);
        assert!(
            left.is_some_and(|left| target.len() as u64 <= left),
            "bytes beyond the end of {}",
            tensor.name()
        );
        let part = &self.parts[tensor.part];
        let result = part.source.read(tensor.range().start + offset, target);
        result.map_err(|error| error.tensor(tensor.name()).in_file(part.path()))
    }

    /// All stored bytes of a tensor of this file.
    ///
    /// # Errors
    /// Those of [`read`](File::read).
    pub fn read_all(&self, tensor: &Tensor) -> Result<Vec<u8>, GgufError> {
        let mut bytes = vec![0; tensor.byte_len() as usize];
        self.read(tensor, 0, &mut bytes)?;
        Ok(bytes)
    }

    /// Checks that nobody has written to the file, or to a part, since it was opened, as far as
    /// length and time of modification tell.
    ///
    /// # Errors
    /// Somebody has, or the system does not say.
    pub fn check_unchanged(&self) -> Result<(), GgufError> {
        for part in &self.parts {
            let unchanged = match part.source.is_unchanged() {
                Ok(false) => Err(GgufError::new(Cause::Changed)),
                result => result,
            };
            unchanged.map_err(|error| error.in_file(part.path()))?;
        }
        Ok(())
    }

    fn refuse(&self, tensor: &str, cause: Cause) -> GgufError {
        GgufError::new(cause).tensor(tensor).in_file(self.path())
    }
}
