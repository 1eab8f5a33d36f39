//! Little-endian numbers in and out of bytes.

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

/// Takes numbers from bytes. No count is believed that the bytes cannot hold.
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

    /// As [`Encoder::list`] wrote it.
    pub(super) fn list<T>(
        &mut self,
        mut each: impl FnMut(&mut Decoder<'a>) -> Result<T, SessionError>,
    ) -> Result<Vec<T>, SessionError> {
        let count = self.u32()?;
        // Memory grows with what is there, not with what is said: an element has at least four bytes.
        let mut items = Vec::with_capacity((count as usize).min(self.0.len() / 4));
        for _ in 0..count {
            items.push(each(self)?);
        }
        Ok(items)
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
