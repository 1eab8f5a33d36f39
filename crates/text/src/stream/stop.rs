//! Finds stop strings in streamed text.

use super::StreamDelta;

/// Why stop strings cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StopError {
    /// An empty string would stop every answer before it begins.
    #[error("stop string {index} is empty")]
    Empty {
        /// The position of the empty string.
        index: usize,
    },
}

/// Finds the first of several stop strings in streamed text.
///
/// Text that may be the beginning of a stop string is held back until it cannot be one. A stop
/// string matches at its last character. If several end there, the longest one wins, which began
/// first.
#[derive(Debug, Clone)]
pub struct StopMatcher {
    patterns: Vec<Pattern>,
    held: String,
    stopped: Option<usize>,
}

impl StopMatcher {
    /// A matcher for `stops`; without any, text passes unchanged.
    ///
    /// # Errors
    ///
    /// [`StopError::Empty`] when one of the strings has no characters.
    pub fn new(stops: Vec<String>) -> Result<Self, StopError> {
        if let Some(index) = stops.iter().position(String::is_empty) {
            return Err(StopError::Empty { index });
        }
        Ok(Self {
            patterns: stops.into_iter().map(Pattern::new).collect(),
            held: String::new(),
            stopped: None,
        })
    }

    /// Takes more text and returns the text before any possible stop string. Returns nothing after
    /// a stop string.
    pub fn push(&mut self, text: &str) -> StreamDelta {
        if self.stopped.is_some() {
            return StreamDelta::default();
        }
        for (index, &byte) in text.as_bytes().iter().enumerate() {
            if let Some((stop, length)) = self.step(byte) {
                return self.stop(stop, &text[..=index], length);
            }
        }
        self.held.push_str(text);
        let undecided = self.patterns.iter().map(|pattern| pattern.matched).max();
        let certain = self.held.len() - undecided.unwrap_or(0);
        StreamDelta { text: self.held.drain(..certain).collect(), stopped: None }
    }

    /// Ends the text and returns what was held back.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// The index of the stop string that was found, if one was.
    pub fn stopped(&self) -> Option<usize> {
        self.stopped
    }

    /// Takes one byte. Returns the stop string that it completes, and its length.
    fn step(&mut self, byte: u8) -> Option<(usize, usize)> {
        let mut completed = None;
        for (index, pattern) in self.patterns.iter_mut().enumerate() {
            let length = pattern.text.len();
            if pattern.step(byte) && completed.is_none_or(|(_, longest)| length > longest) {
                completed = Some((index, length));
            }
        }
        completed
    }

    fn stop(&mut self, stop: usize, read: &str, length: usize) -> StreamDelta {
        let mut text = std::mem::take(&mut self.held);
        text.push_str(read);
        text.truncate(text.len() - length);
        self.stopped = Some(stop);
        StreamDelta { text, stopped: self.stopped }
    }
}

/// One stop string and how much of it the text so far ends with.
///
/// The automaton of Knuth, Morris and Pratt, "Fast Pattern Matching in
/// Strings" (1977), over bytes: UTF-8 never matches out of step.
#[derive(Debug, Clone)]
struct Pattern {
    text: String,
    /// For each prefix, its longest proper suffix that is a prefix as well.
    fallback: Vec<usize>,
    matched: usize,
}

impl Pattern {
    fn new(text: String) -> Self {
        let bytes = text.as_bytes();
        let mut fallback = vec![0; bytes.len()];
        let mut length = 0;
        for end in 1..bytes.len() {
            while length > 0 && bytes[end] != bytes[length] {
                length = fallback[length - 1];
            }
            length += usize::from(bytes[end] == bytes[length]);
            fallback[end] = length;
        }
        Self { text, fallback, matched: 0 }
    }

    /// Takes one byte and returns whether it completes the string. Must not be called after that.
    fn step(&mut self, byte: u8) -> bool {
        let bytes = self.text.as_bytes();
        while self.matched > 0 && bytes[self.matched] != byte {
            self.matched = self.fallback[self.matched - 1];
        }
        self.matched += usize::from(bytes[self.matched] == byte);
        self.matched == bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matcher(stops: &[&str]) -> StopMatcher {
        StopMatcher::new(stops.iter().map(|&stop| stop.to_owned()).collect()).unwrap()
    }

    fn text(matcher: &mut StopMatcher, piece: &str) -> String {
        matcher.push(piece).text
    }

    #[test]
    fn spans_pieces_and_keeps_what_came_before() {
        let mut matcher = matcher(&["O P Q"]);
        assert_eq!(text(&mut matcher, "M N O"), "M N ");
        assert_eq!(text(&mut matcher, " P"), "");
        let last = matcher.push(" Q R");
        assert_eq!((last.text.as_str(), last.stopped), ("", Some(0)));
    }

    #[test]
    fn held_text_is_released_once() {
        let mut matcher = matcher(&["abc"]);
        assert_eq!(text(&mut matcher, "xab"), "x");
        assert_eq!(text(&mut matcher, "ab"), "ab");
        assert_eq!(text(&mut matcher, "d"), "abd");
        assert_eq!(text(&mut matcher, "a"), "");
        assert_eq!(matcher.finish(), "a");
        assert_eq!(matcher.finish(), "");
    }

    #[test]
    fn a_repeating_stop_string_falls_back_far_enough() {
        let mut matcher = matcher(&["aab"]);
        assert_eq!(text(&mut matcher, "aaa"), "a");
        let last = matcher.push("b");
        assert_eq!((last.text.as_str(), last.stopped), ("", Some(0)));
    }

    #[test]
    fn the_first_to_be_completed_wins_and_the_longest_of_those() {
        assert_eq!(matcher(&["abcd", "bc"]).push("xabcd").stopped, Some(1));
        let both = matcher(&["b", "ab", "ab"]).push("xab");
        assert_eq!((both.text.as_str(), both.stopped), ("x", Some(1)));
    }

    #[test]
    fn characters_of_several_bytes_are_held_whole() {
        let mut matcher = matcher(&["日本"]);
        assert_eq!(text(&mut matcher, "x日"), "x");
        assert_eq!(text(&mut matcher, "木"), "日木");
    }

    #[test]
    fn empty_stop_strings_are_refused() {
        let stops = vec!["a".to_owned(), String::new()];
        assert_eq!(StopMatcher::new(stops).unwrap_err(), StopError::Empty { index: 1 });
    }
}
