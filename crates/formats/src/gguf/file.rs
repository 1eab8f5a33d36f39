use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use minfer_tensor::DType;

use super::error::{Cause, GgufError};
use super::metadata::Metadata;
use super::parse::{Parsed, parse};
use super::tensor::Tensor;
use super::tensor_type::TensorType;
use crate::mapped::Mapped;

/// A GGUF file whose header has been read and checked.
///
/// The file must not be modified while it is open; replacing it by a rename is safe.
#[derive(Debug)]
pub struct File {
    path: Option<PathBuf>,
    bytes: Bytes,
    parsed: Parsed,
}

#[derive(Debug)]
enum Bytes {
    Mapped(Mapped),
    Owned(Vec<u8>),
}

impl File {
    /// Maps a file and reads its header. No tensor data is touched.
    ///
    /// # Errors
    /// The file cannot be opened, or its header breaks a rule of the format. The error names the file.
    pub fn open(path: impl AsRef<Path>) -> Result<File, GgufError> {
        let path = path.as_ref();
        Self::open_mapped(path).map_err(|error| error.in_file(Some(path)))
    }

    /// Reads the header of a file that is already in memory.
    ///
    /// # Errors
    /// The header breaks a rule of the format.
    pub fn parse(bytes: impl Into<Vec<u8>>) -> Result<File, GgufError> {
        let bytes = bytes.into();
        let parsed = parse(&bytes)?;
        Ok(File { path: None, bytes: Bytes::Owned(bytes), parsed })
    }

    /// Where the file was opened; none for bytes in memory.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Version of the format, 2 or 3.
    pub fn version(&self) -> u32 {
        self.parsed.version
    }

    /// Alignment of tensor data, in bytes.
    pub fn alignment(&self) -> u64 {
        self.parsed.alignment
    }

    /// Size of the whole file, in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Where the data section starts. A file without tensors may end before.
    pub fn data_start(&self) -> u64 {
        self.parsed.data_start
    }

    /// The metadata.
    pub fn metadata(&self) -> Metadata<'_> {
        Metadata::new(&self.bytes, &self.parsed, self.path())
    }

    /// The tensors, in file order.
    pub fn tensors(&self) -> &[Tensor] {
        &self.parsed.tensors
    }

    /// The tensor of a name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        let name_of = |position: usize| self.parsed.tensors[position].name().as_bytes();
        self.parsed.tensor_names.find(name.as_bytes(), name_of).map(|position| &self.parsed.tensors[position])
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
        self.bytes.get(tensor.range()).expect("the tensor is one of this file's")
    }

    /// Tells the kernel that a tensor's bytes will soon be read. A hint that may do nothing.
    pub fn will_need(&self, tensor: &Tensor) {
        if let Bytes::Mapped(mapped) = &self.bytes {
            mapped.will_need(tensor.range());
        }
    }

    /// Tells the kernel that a tensor's bytes need not stay in memory. Reading them again is allowed and brings them
    /// back from the file. A hint that may do nothing.
    pub fn dont_need(&self, tensor: &Tensor) {
        if let Bytes::Mapped(mapped) = &self.bytes {
            mapped.dont_need(tensor.range());
        }
    }

    fn open_mapped(path: &Path) -> Result<File, GgufError> {
        // The kind is looked at first: opening a pipe would wait for a writer.
        check_kind(&fs::metadata(path)?)?;
        let handle = fs::File::open(path)?;
        let metadata = handle.metadata()?;
        check_kind(&metadata)?;
        if metadata.len() == 0 {
            return Err(GgufError::new(Cause::Empty));
        }
        let mapped = Mapped::new(&handle)?;
        let parsed = parse(&mapped)?;
        Ok(File { path: Some(path.to_owned()), bytes: Bytes::Mapped(mapped), parsed })
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
