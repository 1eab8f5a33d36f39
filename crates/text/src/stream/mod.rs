//! Streaming detokenization: token bytes become text deltas, up to a stop string.
//!
//! A token may end inside a UTF-8 character, and a stop string may begin inside a token. Such bytes
//! are held back until the next tokens decide. The deltas joined together equal the answer decoded
//! at once.

mod stop;
mod utf8;

pub use stop::{StopError, StopMatcher};
pub use utf8::Utf8Stream;

/// New text of a stream, and whether a stop string ended it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamDelta {
    /// The text to append to what was shown before; may be empty.
    pub text: String,
    /// The index of the stop string that ended the text, if one did.
    pub stopped: Option<usize>,
}

/// Decodes token bytes to text and looks for stop strings.
///
/// ```
/// use minfer_text::TextStream;
///
/// let mut stream = TextStream::new(vec!["END".to_owned()])?;
/// assert_eq!(stream.push(b"caf\xc3").text, "caf");
/// assert_eq!(stream.push(b"\xa9 E").text, "é ");
/// let last = stream.push(b"ND of it");
/// assert_eq!((last.text.as_str(), last.stopped), ("", Some(0)));
/// # Ok::<(), minfer_text::StopError>(())
/// ```
#[derive(Debug, Clone)]
pub struct TextStream {
    utf8: Utf8Stream,
    stops: StopMatcher,
}

impl TextStream {
    /// A stream that ends at the first of `stops`, which may be empty.
    ///
    /// # Errors
    ///
    /// [`StopError::Empty`] when one of the strings has no characters.
    pub fn new(stops: Vec<String>) -> Result<Self, StopError> {
        Ok(Self { utf8: Utf8Stream::default(), stops: StopMatcher::new(stops)? })
    }

    /// Takes the bytes of the next token. After a stop string every delta is empty.
    pub fn push(&mut self, bytes: &[u8]) -> StreamDelta {
        let text = self.utf8.push(bytes);
        self.stops.push(&text)
    }

    /// Ends the stream and returns the text that was held back.
    pub fn finish(&mut self) -> StreamDelta {
        let tail = self.utf8.finish();
        let mut delta = self.stops.push(&tail);
        delta.text.push_str(&self.stops.finish());
        delta
    }

    /// The stop string that ended the stream, if one did.
    pub fn stopped(&self) -> Option<usize> {
        self.stops.stopped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The expected text: all bytes decoded lossily, cut where the stop string that is completed
    /// first begins.
    fn plain_answer(bytes: &[u8], stops: &[String]) -> (String, Option<usize>) {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let completed = text.char_indices().find_map(|(at, character)| {
            let read = &text[..at + character.len_utf8()];
            let found = stops.iter().enumerate().filter(|(_, stop)| read.ends_with(*stop));
            let longest = found.max_by_key(|(index, stop)| (stop.len(), usize::MAX - index))?;
            Some((read.len() - longest.1.len(), longest.0))
        });
        match completed {
            Some((end, stop)) => (text[..end].to_owned(), Some(stop)),
            None => (text, None),
        }
    }

    fn streamed(pieces: &[Vec<u8>], stops: &[String]) -> (String, Option<usize>) {
        let mut stream = TextStream::new(stops.to_vec()).unwrap();
        let mut text = String::new();
        for piece in pieces {
            text.push_str(&stream.push(piece).text);
        }
        text.push_str(&stream.finish().text);
        (text, stream.stopped())
    }

    fn bytes_piece() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => "[ab ]{0,4}".prop_map(String::into_bytes),
            2 => prop::sample::select("é日👍".as_bytes().to_vec()).prop_map(|byte| vec![byte]),
            1 => Just("日本👍é".as_bytes().to_vec()),
            2 => prop::collection::vec(any::<u8>(), 0..4),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn deltas_equal_the_plain_answer(
            pieces in prop::collection::vec(bytes_piece(), 0..12),
            stops in prop::collection::vec("[ab é日\u{fffd}]{1,4}", 0..4),
        ) {
            let plain = plain_answer(&pieces.concat(), &stops);
            prop_assert_eq!(streamed(&pieces, &stops), plain);
        }
    }

    #[test]
    fn a_stop_string_ends_an_incomplete_character_too() {
        let mut stream = TextStream::new(vec!["\u{fffd}".to_owned()]).unwrap();
        assert_eq!(stream.push(b"a\xe6\xad").text, "a");
        assert_eq!(stream.finish().stopped, Some(0));
    }

    #[test]
    fn nothing_follows_a_stop() {
        let mut stream = TextStream::new(vec!["!".to_owned()]).unwrap();
        assert_eq!(stream.push(b"ok! more").text, "ok");
        assert_eq!(stream.push(b"more").text, "");
        assert_eq!(stream.finish().text, "");
        assert_eq!(stream.stopped(), Some(0));
    }
}
