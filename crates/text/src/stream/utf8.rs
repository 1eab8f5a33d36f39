//! Incremental UTF-8 decoding.

/// Decodes UTF-8 from chunks of bytes. An incomplete character is held back.
///
/// Bytes that can never become valid turn into U+FFFD exactly where
/// [`String::from_utf8_lossy`] over all the bytes would put it.
#[derive(Debug, Clone, Default)]
pub struct Utf8Stream {
    /// The beginning of a character, at most three bytes.
    tail: Vec<u8>,
}

impl Utf8Stream {
    /// Takes more bytes and returns the text of all complete characters.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        let mut pending = std::mem::take(&mut self.tail);
        pending.extend_from_slice(bytes);
        let mut text = String::with_capacity(pending.len());
        let mut rest = pending.as_slice();
        loop {
            let error = match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    return text;
                }
                Err(error) => error,
            };
            let (valid, invalid) = rest.split_at(error.valid_up_to());
            text.push_str(std::str::from_utf8(valid).expect("checked up to here"));
            let Some(broken) = error.error_len() else {
                self.tail = invalid.to_vec();
                return text;
            };
            text.push(char::REPLACEMENT_CHARACTER);
            rest = &invalid[broken..];
        }
    }

    /// Ends the stream: an incomplete character becomes one U+FFFD.
    pub fn finish(&mut self) -> String {
        let tail = std::mem::take(&mut self.tail);
        String::from_utf8_lossy(&tail).into_owned()
    }

    /// Whether an incomplete character is held back.
    pub fn is_incomplete(&self) -> bool {
        !self.tail.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_character_cut_in_two_comes_out_whole() {
        let mut stream = Utf8Stream::default();
        assert_eq!(stream.push(&[b'x', 0xe6, 0xad]), "x");
        assert!(stream.is_incomplete());
        assert_eq!(stream.push(&[0xa3, b'y']), "正y");
        assert!(!stream.is_incomplete());
        assert_eq!(stream.finish(), "");
    }

    #[test]
    fn hopeless_bytes_are_replaced_at_once() {
        let mut stream = Utf8Stream::default();
        assert_eq!(stream.push(&[0xff]), "\u{fffd}");
        assert_eq!(stream.push(&[0xe6, b'a']), "\u{fffd}a");
        assert_eq!(stream.push(&[0xf0, 0x9f]), "");
        assert_eq!(stream.finish(), "\u{fffd}");
        assert_eq!(stream.finish(), "");
    }

    proptest! {
        #[test]
        fn equals_the_lossy_text(
            pieces in prop::collection::vec(
                prop::collection::vec(
                    prop_oneof![0x7fu8..0xc5, 0xdfu8..=0xff, Just(0x80), Just(0x9f)], 0..4
                ),
                0..10,
            ),
        ) {
            let mut stream = Utf8Stream::default();
            let mut text: String = pieces.iter().map(|piece| stream.push(piece)).collect();
            text.push_str(&stream.finish());
            let whole = pieces.concat();
            prop_assert_eq!(text, String::from_utf8_lossy(&whole));
        }
    }
}
