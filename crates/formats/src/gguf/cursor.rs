//! Reads little-endian fields from a byte slice, with bounds checks and the offset of each error.

use super::error::{Cause, GgufError};

/// Reads little-endian fields, and fails with the offset of the field that does not fit.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    /// The first bytes of the file.
    bytes: &'a [u8],
    /// Bytes of the whole file.
    length: u64,
    at: usize,
    beyond: Option<u64>,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self::of_start(bytes, bytes.len() as u64)
    }

    /// Reads the start of a file of `length` bytes.
    pub(super) fn of_start(bytes: &'a [u8], length: u64) -> Self {
        Cursor { bytes, length, at: 0, beyond: None }
    }

    /// The end of a field that the file has and `bytes` has not. The error that it led to means
    /// nothing.
    pub(super) fn beyond(&self) -> Option<u64> {
        self.beyond
    }

    /// Offset of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.at as u64
    }

    /// Position of the next byte, for slicing.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn left(&self) -> u64 {
        self.length - self.offset()
    }

    /// The next `count` bytes.
    pub(super) fn take(&mut self, count: u64) -> Result<&'a [u8], GgufError> {
        let (rest, left) = (&self.bytes[self.at..], self.left());
        if count > rest.len() as u64 {
            self.beyond = (count <= left).then(|| self.offset() + count);
            return Err(GgufError::new(Cause::Truncated { wanted: count, left }).at(self.offset()));
        }
        let (taken, _) = rest.split_at(count as usize);
        self.at += taken.len();
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        let bytes = self.take(N as u64)?;
        Ok(*bytes.first_chunk().expect("take returns as many bytes as asked"))
    }

    pub(super) fn u32(&mut self) -> Result<u32, GgufError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, GgufError> {
        self.array().map(u64::from_le_bytes)
    }

    /// A string: its length in bytes, then its bytes, which need not be UTF-8.
    pub(super) fn string(&mut self) -> Result<&'a [u8], GgufError> {
        let start = self.offset();
        let length = self.u64()?;
        if length > self.left() {
            let cause = Cause::Truncated { wanted: length, left: self.left() };
            return Err(GgufError::new(cause).at(start));
        }
        self.take(length)
    }

    /// A count of things of at least `min_bytes` each, which the rest of the file must be able to
    /// hold.
    pub(super) fn count(&mut self, what: &'static str, min_bytes: u64) -> Result<u64, GgufError> {
        let start = self.offset();
        let count = self.u64()?;
        let left = self.left();
        if count > left / min_bytes {
            return Err(GgufError::new(Cause::Count { what, count, left, min_bytes }).at(start));
        }
        Ok(count)
    }
}
