//! Tensor entries: name, shape, type, and the checked place of the data.

use std::ops::Range;

use minfer_tensor::DType;

use super::cursor::Cursor;
use super::error::{Cause, GgufError, Item, Text};
use super::limits::{MAX_DIMS, MAX_TENSOR_NAME_BYTES};
use super::names::NameIndex;
use super::parse::read_name;
use super::tensor_type::TensorType;

/// A tensor of a file: what it is and where its bytes lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    name: String,
    tensor_type: TensorType,
    dims: Vec<u64>,
    elements: u64,
    bytes: u64,
    offset: u64,
    /// Where the data lies in its part of the file; empty until it is placed.
    range: Range<u64>,
    /// Which part of a split model holds it, from 0.
    pub(super) part: usize,
    /// Offset of the tensor's description, for errors.
    described_at: u64,
}

impl Tensor {
    /// Name of the tensor.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How the file stores it.
    pub fn tensor_type(&self) -> TensorType {
        self.tensor_type
    }

    /// The element type, if this build reads it.
    pub fn dtype(&self) -> Option<DType> {
        self.tensor_type.dtype()
    }

    /// Extents as in the file: the first is the contiguous one, the length of a row. At most four;
    /// none for a scalar.
    pub fn dims(&self) -> &[u64] {
        &self.dims
    }

    /// Elements of a row; 1 for a scalar.
    pub fn row_len(&self) -> u64 {
        self.dims.first().copied().unwrap_or(1)
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        self.dims.iter().skip(1).product()
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// Number of bytes.
    pub fn byte_len(&self) -> u64 {
        self.bytes
    }

    /// Where the data starts, counted from the start of the data section.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Which part of a split model holds it, from 0; 0 where the model is one file.
    pub fn part(&self) -> usize {
        self.part
    }

    /// Where the data lies in the file, or in the part that holds it.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }
}

/// Reads the descriptions of all tensors.
pub(super) fn read_all(cursor: &mut Cursor<'_>, count: u64) -> Result<Vec<Tensor>, GgufError> {
    (0..count)
        .map(|position| read(cursor).map_err(|error| error.with_item(Item::TensorAt(position))))
        .collect()
}

/// Indexes the tensors by name, and refuses duplicates.
pub(super) fn index(tensors: &[Tensor]) -> Result<NameIndex, GgufError> {
    NameIndex::new(tensors.len(), |position| tensors[position].name.as_bytes())
        .map_err(|position| refuse(&tensors[position], Cause::DuplicateTensor))
}

/// Gives each tensor its place in a file of `file_len` bytes whose data section starts at
/// `data_start`.
pub(super) fn place_all(
    tensors: &mut [Tensor],
    data_start: u64,
    alignment: u64,
    file_len: u64,
) -> Result<(), GgufError> {
    for tensor in tensors.iter_mut() {
        match place(tensor, data_start, alignment, file_len) {
            Ok(range) => tensor.range = range,
            Err(cause) => return Err(refuse(tensor, cause)),
        }
    }
    refuse_overlaps(tensors)
}

/// Number of elements and bytes of a tensor of these extents.
pub(super) fn extent(tensor_type: TensorType, dims: &[u64]) -> Result<(u64, u64), Cause> {
    if let Some(index) = dims.iter().position(|&dim| dim == 0) {
        return Err(Cause::ZeroDim { index });
    }
    let overflow = || Cause::DimsOverflow { dims: dims.to_vec() };
    // Counts stay below 2^63, as ggml keeps them signed.
    let elements = dims
        .iter()
        .try_fold(1u64, |product, &dim| product.checked_mul(dim))
        .filter(|&elements| i64::try_from(elements).is_ok())
        .ok_or_else(overflow)?;
    let (row, block_len) = (dims.first().copied().unwrap_or(1), tensor_type.block_len());
    if !row.is_multiple_of(block_len) {
        return Err(Cause::PartialBlock { name: tensor_type.name(), elements: row, block_len });
    }
    let bytes = (elements / block_len)
        .checked_mul(tensor_type.block_bytes())
        .filter(|&bytes| i64::try_from(bytes).is_ok())
        .ok_or_else(overflow)?;
    Ok((elements, bytes))
}

fn read(cursor: &mut Cursor<'_>) -> Result<Tensor, GgufError> {
    let described_at = cursor.offset();
    let name = read_name(cursor, MAX_TENSOR_NAME_BYTES, Text::TensorName)?;
    read_description(cursor, name, described_at).map_err(|error| error.tensor(name))
}

fn read_description(cursor: &mut Cursor<'_>, name: &str, described_at: u64) -> Result<Tensor, GgufError> {
    let dims_at = cursor.offset();
    let found = cursor.u32()?;
    if found > MAX_DIMS {
        return Err(GgufError::new(Cause::TooManyDims { found }).at(dims_at));
    }
    let dims = (0..found).map(|_| cursor.u64()).collect::<Result<Vec<_>, _>>()?;
    let type_at = cursor.offset();
    let id = cursor.u32()?;
    let tensor_type =
        TensorType::from_id(id).ok_or_else(|| GgufError::new(Cause::UnknownTensorType { id }).at(type_at))?;
    let offset = cursor.u64()?;
    let (elements, bytes) = extent(tensor_type, &dims).map_err(|cause| GgufError::new(cause).at(dims_at))?;
    Ok(Tensor {
        name: name.to_owned(),
        tensor_type,
        dims,
        elements,
        bytes,
        offset,
        range: 0..0,
        part: 0,
        described_at,
    })
}

fn place(tensor: &Tensor, data_start: u64, alignment: u64, file_len: u64) -> Result<Range<u64>, Cause> {
    let Tensor { offset, bytes, .. } = *tensor;
    if !offset.is_multiple_of(alignment) {
        return Err(Cause::Misaligned { offset, alignment });
    }
    let available = file_len.saturating_sub(data_start);
    let end = offset.checked_add(bytes).filter(|&end| end <= available);
    let Some(end) = end else {
        return Err(Cause::PastEnd { offset, bytes, available });
    };
    Ok(data_start + offset..data_start + end)
}

fn refuse_overlaps(tensors: &[Tensor]) -> Result<(), GgufError> {
    let mut order: Vec<&Tensor> = tensors.iter().collect();
    order.sort_by_key(|tensor| tensor.range.start);
    match order.windows(2).find(|pair| pair[1].range.start < pair[0].range.end) {
        None => Ok(()),
        Some(pair) => Err(refuse(pair[1], Cause::Overlap { other: pair[0].name.clone() })),
    }
}

fn refuse(tensor: &Tensor, cause: Cause) -> GgufError {
    GgufError::new(cause).at(tensor.described_at).tensor(&tensor.name)
}
