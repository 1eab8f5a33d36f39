//! Writes GGUF files: metadata and tensor entries first, then the data of each tensor in order.

use std::collections::HashSet;
use std::io::Write;

use super::error::{Cause, GgufError};
use super::limits::{
    ALIGNMENT_KEY, DEFAULT_ALIGNMENT, MAGIC, MAX_DIMS, MAX_KEY_BYTES, MAX_TENSOR_NAME_BYTES,
};
use super::parse::alignment_is_valid;
use super::tensor::extent;
use super::tensor_type::TensorType;
use super::value::{Value, ValueType};

/// Makes a GGUF file: metadata and tensor descriptions first, then the tensors' bytes as a stream.
///
/// ```
/// use minfer_formats::gguf::{File, Writer};
/// use minfer_tensor::DType;
///
/// let mut writer = Writer::new();
/// writer.put("general.architecture", "llama")?;
/// writer.put("llama.rope.freq_base", &10000.0f32)?;
/// writer.announce("output_norm.weight", DType::F32, &[2])?;
/// let mut sink = writer.start(Vec::new())?;
/// sink.tensor("output_norm.weight", &[0; 8])?;
/// let file = File::parse(sink.finish()?)?;
/// assert_eq!(file.tensors().len(), 1);
/// # Ok::<(), minfer_formats::gguf::GgufError>(())
/// ```
#[derive(Debug)]
pub struct Writer {
    alignment: u64,
    keys: HashSet<String>,
    entries: Vec<u8>,
    names: HashSet<String>,
    announced: Vec<Announced>,
    data_bytes: u64,
}

/// Takes the bytes of the announced tensors, in order.
#[derive(Debug)]
pub struct TensorSink<W> {
    out: W,
    alignment: u64,
    announced: Vec<Announced>,
    /// Position of the tensor whose bytes come next.
    due: usize,
    /// Bytes that this tensor has already received.
    filled: u64,
}

#[derive(Debug)]
struct Announced {
    name: String,
    id: u32,
    dims: Vec<u64>,
    offset: u64,
    bytes: u64,
}

/// A Rust value that metadata can hold.
pub trait WriteValue {
    /// The type that it is stored as.
    const TYPE: ValueType;

    /// Appends the stored form, without the type.
    fn write(&self, out: &mut Vec<u8>);
}

impl Writer {
    /// A file without metadata or tensors, in version 3.
    pub fn new() -> Writer {
        Writer {
            alignment: DEFAULT_ALIGNMENT,
            keys: HashSet::new(),
            entries: Vec::new(),
            names: HashSet::new(),
            announced: Vec::new(),
            data_bytes: 0,
        }
    }

    /// Aligns tensor data to `alignment` bytes and says so in the metadata. Call it before any
    /// tensor is announced.
    ///
    /// # Errors
    /// The alignment is not allowed, or already stated.
    ///
    /// # Panics
    /// A tensor has been announced.
    pub fn align(&mut self, alignment: u32) -> Result<(), GgufError> {
        assert!(self.announced.is_empty(), "alignment is chosen before tensors are placed");
        self.put(ALIGNMENT_KEY, &alignment)
    }

    /// Adds a metadata entry.
    ///
    /// # Errors
    /// The key is empty, too long or already there, or `general.alignment` is not allowed.
    pub fn put<T: WriteValue + ?Sized>(&mut self, key: &str, value: &T) -> Result<(), GgufError> {
        let mut stored = Vec::new();
        value.write(&mut stored);
        self.put_stored(key, T::TYPE, &stored)
    }

    /// Adds a metadata entry as it was read from another file.
    ///
    /// # Errors
    /// As for [`Writer::put`].
    pub fn copy(&mut self, key: &str, value: &Value<'_>) -> Result<(), GgufError> {
        let mut stored = Vec::new();
        write_read(value, &mut stored);
        self.put_stored(key, value.value_type(), &stored)
    }

    /// Announces a tensor; `dims` as in the file, the contiguous extent first.
    ///
    /// # Errors
    /// The name, the type or the extents are not allowed, or the name is already there.
    pub fn announce(
        &mut self,
        name: &str,
        tensor_type: impl Into<TensorType>,
        dims: &[u64],
    ) -> Result<(), GgufError> {
        let described = self.describe(name, tensor_type.into(), dims);
        let tensor = described.map_err(|cause| GgufError::new(cause).tensor(name))?;
        self.data_bytes = tensor.offset + tensor.bytes.next_multiple_of(self.alignment);
        self.names.insert(name.to_owned());
        self.announced.push(tensor);
        Ok(())
    }

    /// Writes everything before the tensors' bytes, and returns the sink for those.
    ///
    /// # Errors
    /// The output refuses.
    pub fn start<W: Write>(self, mut out: W) -> Result<TensorSink<W>, GgufError> {
        let mut header = MAGIC.to_vec();
        3u32.write(&mut header);
        (self.announced.len() as u64).write(&mut header);
        (self.keys.len() as u64).write(&mut header);
        header.extend_from_slice(&self.entries);
        for tensor in &self.announced {
            tensor.write(&mut header);
        }
        // Padding is written even without tensors, as the common tools do.
        header.resize(header.len().next_multiple_of(self.alignment as usize), 0);
        out.write_all(&header)?;
        Ok(TensorSink { out, alignment: self.alignment, announced: self.announced, due: 0, filled: 0 })
    }

    fn put_stored(&mut self, key: &str, value_type: ValueType, stored: &[u8]) -> Result<(), GgufError> {
        let refuse = |cause| Err(GgufError::new(cause).key(key));
        if let Err(cause) = check_name(key, MAX_KEY_BYTES) {
            return refuse(cause);
        }
        if key == ALIGNMENT_KEY {
            match Value::decode(value_type, stored) {
                Value::U32(alignment) if alignment_is_valid(alignment.into()) => {
                    self.alignment = alignment.into();
                }
                Value::U32(found) => return refuse(Cause::Alignment { found: found.into() }),
                other => return refuse(Cause::WrongType { found: other.type_name(), wanted: "u32" }),
            }
        }
        if !self.keys.insert(key.to_owned()) {
            return refuse(Cause::DuplicateKey);
        }
        key.write(&mut self.entries);
        value_type.id().write(&mut self.entries);
        self.entries.extend_from_slice(stored);
        Ok(())
    }

    fn describe(&self, name: &str, tensor_type: TensorType, dims: &[u64]) -> Result<Announced, Cause> {
        check_name(name, MAX_TENSOR_NAME_BYTES)?;
        if self.names.contains(name) {
            return Err(Cause::DuplicateTensor);
        }
        if dims.len() > MAX_DIMS as usize {
            return Err(Cause::TooManyDims { found: u32::try_from(dims.len()).unwrap_or(u32::MAX) });
        }
        let id = match tensor_type {
            TensorType::Known(dtype) => tensor_type.id().ok_or(Cause::NotStorable { dtype })?,
            TensorType::Other { id, .. } => id,
        };
        let (_, bytes) = extent(tensor_type, dims)?;
        let offset = self.data_bytes;
        let fits = bytes.checked_add(offset).filter(|&end| end < i64::MAX as u64 - self.alignment);
        if fits.is_none() {
            return Err(Cause::DimsOverflow { dims: dims.to_vec() });
        }
        Ok(Announced { name: name.to_owned(), id, dims: dims.to_vec(), offset, bytes })
    }
}

impl Default for Writer {
    fn default() -> Self {
        Writer::new()
    }
}

impl<W: Write> TensorSink<W> {
    /// Writes the whole of the tensor that is due.
    ///
    /// # Errors
    /// Another tensor is due, the size is not its size, or the output refuses.
    pub fn tensor(&mut self, name: &str, bytes: &[u8]) -> Result<(), GgufError> {
        let due =
            self.announced.get(self.due).ok_or_else(|| GgufError::new(Cause::NoTensorDue).tensor(name))?;
        if due.name != name || self.filled != 0 {
            let cause = Cause::TensorOrder { expected: due.name.clone() };
            return Err(GgufError::new(cause).tensor(name));
        }
        let (wanted, found) = (due.bytes, bytes.len() as u64);
        if wanted != found {
            return Err(GgufError::new(Cause::TensorBytes { wanted, found }).tensor(name));
        }
        self.part(bytes)
    }

    /// Writes the next bytes of the tensor that is due; the one after it is due once it is full.
    ///
    /// # Errors
    /// No tensor is due, the bytes are more than it still takes, or the output refuses.
    pub fn part(&mut self, bytes: &[u8]) -> Result<(), GgufError> {
        let due = self.announced.get(self.due).ok_or_else(|| GgufError::new(Cause::NoTensorDue))?;
        let (wanted, found) = (due.bytes, self.filled + bytes.len() as u64);
        if found > wanted {
            return Err(GgufError::new(Cause::TensorBytes { wanted, found }).tensor(&due.name));
        }
        self.out.write_all(bytes)?;
        self.filled = found;
        if found == wanted {
            let padding = wanted.next_multiple_of(self.alignment) - wanted;
            self.out.write_all(&vec![0; padding as usize])?;
            self.due += 1;
            self.filled = 0;
        }
        Ok(())
    }

    /// Flushes and returns the output.
    ///
    /// # Errors
    /// A tensor has not received its bytes, or the output refuses.
    pub fn finish(mut self) -> Result<W, GgufError> {
        if let Some(due) = self.announced.get(self.due) {
            let cause = Cause::TensorBytes { wanted: due.bytes, found: self.filled };
            return Err(GgufError::new(cause).tensor(&due.name));
        }
        self.out.flush()?;
        Ok(self.out)
    }
}

impl Announced {
    fn write(&self, out: &mut Vec<u8>) {
        self.name.as_str().write(out);
        (self.dims.len() as u32).write(out);
        for dim in &self.dims {
            dim.write(out);
        }
        self.id.write(out);
        self.offset.write(out);
    }
}

fn check_name(name: &str, limit: u64) -> Result<(), Cause> {
    match name.len() as u64 {
        0 => Err(Cause::EmptyName),
        length if length > limit => Err(Cause::NameTooLong { length, limit }),
        _ => Ok(()),
    }
}

fn write_read(value: &Value<'_>, out: &mut Vec<u8>) {
    match *value {
        Value::U8(value) => value.write(out),
        Value::I8(value) => value.write(out),
        Value::U16(value) => value.write(out),
        Value::I16(value) => value.write(out),
        Value::U32(value) => value.write(out),
        Value::I32(value) => value.write(out),
        Value::F32(value) => value.write(out),
        Value::Bool(value) => value.write(out),
        Value::U64(value) => value.write(out),
        Value::I64(value) => value.write(out),
        Value::F64(value) => value.write(out),
        Value::String(bytes) => write_string(bytes, out),
        Value::Array(array) => {
            let (element_type, len, body) = array.stored();
            element_type.id().write(out);
            len.write(out);
            out.extend_from_slice(body);
        }
    }
}

fn write_string(bytes: &[u8], out: &mut Vec<u8>) {
    (bytes.len() as u64).write(out);
    out.extend_from_slice(bytes);
}

macro_rules! write_numbers {
    ($($number:ty => $value_type:ident),*) => {$(
        impl WriteValue for $number {
            const TYPE: ValueType = ValueType::$value_type;

            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

write_numbers!(
    u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, f32 => F32, u64 => U64, i64 => I64, f64 => F64
);

impl WriteValue for bool {
    const TYPE: ValueType = ValueType::Bool;

    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl WriteValue for str {
    const TYPE: ValueType = ValueType::String;

    fn write(&self, out: &mut Vec<u8>) {
        write_string(self.as_bytes(), out);
    }
}

impl WriteValue for String {
    const TYPE: ValueType = ValueType::String;

    fn write(&self, out: &mut Vec<u8>) {
        self.as_str().write(out);
    }
}

impl<T: WriteValue + ?Sized> WriteValue for &T {
    const TYPE: ValueType = T::TYPE;

    fn write(&self, out: &mut Vec<u8>) {
        (**self).write(out);
    }
}

impl<T: WriteValue> WriteValue for [T] {
    const TYPE: ValueType = ValueType::Array;

    fn write(&self, out: &mut Vec<u8>) {
        T::TYPE.id().write(out);
        (self.len() as u64).write(out);
        for element in self {
            element.write(out);
        }
    }
}

impl<T: WriteValue> WriteValue for Vec<T> {
    const TYPE: ValueType = ValueType::Array;

    fn write(&self, out: &mut Vec<u8>) {
        self.as_slice().write(out);
    }
}

impl<T: WriteValue, const N: usize> WriteValue for [T; N] {
    const TYPE: ValueType = ValueType::Array;

    fn write(&self, out: &mut Vec<u8>) {
        self.as_slice().write(out);
    }
}
