//! Encoding and decoding of little-endian numbers.

use super::SessionError;

/// Appends numbers to bytes.
#[derive(Default)]
pub(super) struct Encoder(pub(super) Vec<u8>);

impl Encoder {
    pub(super) fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    pub(super) fn u128(&mut self, value: u128) {
        self.0.extend(value.to_le_bytes());
    }

    /// A count, then each element.
    pub(super) fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Encoder, &T)) {
        self.u32(items.len() as u32);
        items.iter().for_each(|item| each(self, item));
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.extend(bytes);
    }
}

/// Reads numbers from bytes. A count that exceeds the remaining bytes is an error.
#[derive(Clone)]
pub(super) struct Decoder<'a>(pub(super) &'a [u8]);

impl<'a> Decoder<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], SessionError> {
        let ends = || SessionError::Contradiction("the header ends too early".to_owned());
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(ends)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], SessionError> {
        Ok(*self.take(N)?.first_chunk().expect("as many bytes as were taken"))
    }

    pub(super) fn u32(&mut self) -> Result<u32, SessionError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u128(&mut self) -> Result<u128, SessionError> {
        self.array().map(u128::from_le_bytes)
    }

    /// As [`list`](Self::list), with a bound: for elements that take more memory than bytes.
    pub(super) fn list_of_at_most<T>(
        &mut self,
        most: usize,
        each: impl FnMut(&mut Decoder<'a>) -> Result<T, SessionError>,
    ) -> Result<Vec<T>, SessionError> {
        let count = self.clone().u32()? as usize;
        if count > most {
            return Err(SessionError::Contradiction(format!("{count} entries where {most} are possible")));
        }
        self.list(each)
    }

    /// A list written by [`Encoder::list`]. Memory grows with the elements that are read, not with
    /// the stated count.
    pub(super) fn list<T>(
        &mut self,
        mut each: impl FnMut(&mut Decoder<'a>) -> Result<T, SessionError>,
    ) -> Result<Vec<T>, SessionError> {
        let count = self.u32()?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(each(self)?);
        }
        Ok(items)
    }

    /// A list of plain numbers.
    pub(super) fn numbers(&mut self) -> Result<Vec<u32>, SessionError> {
        let count = self.u32()? as usize;
        let (numbers, _) = self.take(count.saturating_mul(4))?.as_chunks();
        Ok(numbers.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect())
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], SessionError> {
        let count = self.u32()?;
        self.take(count as usize)
    }

    pub(super) fn text(&mut self) -> Result<String, SessionError> {
        let bytes = self.bytes()?;
        let text = std::str::from_utf8(bytes);
        text.map(str::to_owned).map_err(|_| SessionError::Contradiction("a name is not text".to_owned()))
    }
}
