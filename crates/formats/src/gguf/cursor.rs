use super::error::{Cause, GgufError};

/// Reads little-endian fields, and fails with the offset of the field that does not fit.
#[derive(Clone)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, at: 0 }
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
        (self.bytes.len() - self.at) as u64
    }

    /// The next `count` bytes.
    pub(super) fn take(&mut self, count: u64) -> Result<&'a [u8], GgufError> {
        let rest = &self.bytes[self.at..];
        let wanted = usize::try_from(count).ok().filter(|&count| count <= rest.len());
        let Some(count) = wanted else {
            let cause = Cause::Truncated { wanted: count, left: rest.len() as u64 };
            return Err(GgufError::new(cause).at(self.offset()));
        };
        self.at += count;
        Ok(&rest[..count])
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

    /// A count of things of at least `min_bytes` each, which the rest of the file must be able to hold.
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
