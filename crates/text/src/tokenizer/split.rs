//! Pre-tokenizers: cutting text into the words inside which merges may happen.
//!
//! Each rule set is published as a regular expression with a lookahead. The
//! splitters here are written by hand for speed and return exactly the pieces
//! that the expression, applied from left to right, would return; the tests
//! hold them against a regex engine.

use super::TokenizerError;
use super::classes::{CharClass, CharClasses};

/// A rule set together with the character table it consults.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    rules: Rules,
    classes: CharClasses,
}

#[derive(Debug, Clone, Copy)]
enum Rules {
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    Gpt2,
    /// Each number character alone, and between them the rules of `Gpt2`.
    SmolLm,
    /// `'[sStTmMdD]|'[rR][eE]|'[vV][eE]|'[lL][lL]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|
    /// ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
    Qwen2,
}

const NAMES: &[(&str, Rules)] =
    &[("default", Rules::Gpt2), ("gpt-2", Rules::Gpt2), ("qwen2", Rules::Qwen2), ("smollm", Rules::SmolLm)];

impl PreTokenizer {
    /// The pre-tokenizer that model files call `name`.
    pub(super) fn named(name: &str) -> Result<Self, TokenizerError> {
        let Some((_, rules)) = NAMES.iter().find(|(known, _)| *known == name) else {
            let names: Vec<&str> = NAMES.iter().map(|(known, _)| *known).collect();
            return Err(TokenizerError::UnknownPre { name: name.to_owned(), supported: names.join(", ") });
        };
        Ok(Self { rules: *rules, classes: CharClasses::new() })
    }

    /// Calls `word` with each piece of `text`, in order and without gaps.
    pub(super) fn split<'t>(&self, text: &'t str, word: impl FnMut(&'t str)) {
        self.rules.split(&self.classes, text, word);
    }

    /// The bytes held on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        self.classes.memory_bytes()
    }
}

impl Rules {
    fn split<'t>(self, classes: &CharClasses, text: &'t str, mut word: impl FnMut(&'t str)) {
        match self {
            Self::Gpt2 => pieces(classes, text, |scan, at| scan.gpt2_end(at), &mut word),
            Self::Qwen2 => pieces(classes, text, |scan, at| scan.qwen2_end(at), &mut word),
            Self::SmolLm => around_numbers(classes, text, &mut word),
        }
    }
}

fn pieces<'t>(
    classes: &CharClasses,
    text: &'t str,
    end: impl Fn(&Scan<'_>, usize) -> usize,
    word: &mut impl FnMut(&'t str),
) {
    let scan = Scan { text, classes };
    let mut start = 0;
    while start < text.len() {
        let next = end(&scan, start);
        word(&text[start..next]);
        start = next;
    }
}

fn around_numbers<'t>(classes: &CharClasses, text: &'t str, word: &mut impl FnMut(&'t str)) {
    let mut plain = 0;
    for (at, character) in text.char_indices() {
        if classes.of(character) == CharClass::Number {
            let next = at + character.len_utf8();
            pieces(classes, &text[plain..at], |scan, at| scan.gpt2_end(at), word);
            word(&text[at..next]);
            plain = next;
        }
    }
    pieces(classes, &text[plain..], |scan, at| scan.gpt2_end(at), word);
}

/// A text under the splitting rules. Positions are byte offsets at character
/// boundaries; every `*_end` returns one that lies after its argument.
struct Scan<'a> {
    text: &'a str,
    classes: &'a CharClasses,
}

impl Scan<'_> {
    fn gpt2_end(&self, start: usize) -> usize {
        if let Some(end) = self.contraction(start, false) {
            return end;
        }
        let (first, after) = self.class_at(start).expect("start lies inside the text");
        let (class, body) = match self.class_at(after) {
            Some((next, _)) if self.is_blank(start) && next != CharClass::Space => (next, after),
            _ => (first, start),
        };
        match class {
            CharClass::Space => self.spaces_end(start),
            _ => self.run_end(body, class),
        }
    }

    fn qwen2_end(&self, start: usize) -> usize {
        if let Some(end) = self.contraction(start, true) {
            return end;
        }
        let (first, after) = self.class_at(start).expect("start lies inside the text");
        let next = self.class_at(after).map(|(class, _)| class);
        let led_by = first != CharClass::Number && !self.is_line_end(start);
        match first {
            CharClass::Letter => self.run_end(after, CharClass::Letter),
            _ if led_by && next == Some(CharClass::Letter) => self.run_end(after, CharClass::Letter),
            CharClass::Number => after,
            CharClass::Other => self.line_ends_end(self.run_end(after, CharClass::Other)),
            CharClass::Space if self.is_blank(start) && next == Some(CharClass::Other) => {
                self.line_ends_end(self.run_end(after, CharClass::Other))
            }
            CharClass::Space => self.line_or_spaces_end(start),
        }
    }

    /// `'s|'t|'re|'ve|'m|'ll|'d`, optionally in capitals too.
    fn contraction(&self, start: usize, any_case: bool) -> Option<usize> {
        let rest = self.text.as_bytes()[start..].strip_prefix(b"'")?;
        let letter = |index: usize| {
            let byte = *rest.get(index)?;
            Some(if any_case { byte.to_ascii_lowercase() } else { byte })
        };
        match (letter(0)?, letter(1)) {
            (b's' | b't' | b'm' | b'd', _) => Some(start + 2),
            (b'r' | b'v', Some(b'e')) | (b'l', Some(b'l')) => Some(start + 3),
            _ => None,
        }
    }

    /// `\s*[\r\n]+`, or else `\s+(?!\S)|\s+`, where `start` is a space.
    fn line_or_spaces_end(&self, start: usize) -> usize {
        let end = self.run_end(start, CharClass::Space);
        match self.text[start..end].rfind(['\r', '\n']) {
            Some(last) => start + last + 1,
            None => self.leave_one_space(start, end),
        }
    }

    /// `\s+(?!\S)|\s+` where `start` is a space.
    fn spaces_end(&self, start: usize) -> usize {
        self.leave_one_space(start, self.run_end(start, CharClass::Space))
    }

    /// A run of spaces before a word leaves its last one to the word.
    fn leave_one_space(&self, start: usize, end: usize) -> usize {
        let last = self.text[start..end].chars().next_back();
        let last = start.max(end - last.map_or(0, char::len_utf8));
        if end == self.text.len() || last == start { end } else { last }
    }

    fn line_ends_end(&self, start: usize) -> usize {
        let rest = &self.text.as_bytes()[start..];
        let count = rest.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
        start + count.count()
    }

    fn run_end(&self, start: usize, class: CharClass) -> usize {
        let mut end = start;
        while let Some((found, next)) = self.class_at(end) {
            if found != class {
                break;
            }
            end = next;
        }
        end
    }

    fn class_at(&self, start: usize) -> Option<(CharClass, usize)> {
        let character = self.text[start..].chars().next()?;
        Some((self.classes.of(character), start + character.len_utf8()))
    }

    fn is_blank(&self, start: usize) -> bool {
        self.text.as_bytes()[start] == b' '
    }

    fn is_line_end(&self, start: usize) -> bool {
        matches!(self.text.as_bytes()[start], b'\r' | b'\n')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fancy_regex::Regex;
    use proptest::prelude::*;
    use std::sync::LazyLock;

    const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
    const QWEN2: &str = concat!(
        r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])",
        r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    );

    static GPT2_REGEX: LazyLock<Regex> = LazyLock::new(|| Regex::new(GPT2).unwrap());
    static QWEN2_REGEX: LazyLock<Regex> = LazyLock::new(|| Regex::new(QWEN2).unwrap());
    static CLASSES: LazyLock<CharClasses> = LazyLock::new(CharClasses::new);

    fn by_hand(rules: Rules, text: &str) -> Vec<&str> {
        let mut words = Vec::new();
        rules.split(&CLASSES, text, |word| words.push(word));
        words
    }

    fn by_regex<'t>(regex: &Regex, text: &'t str) -> Vec<&'t str> {
        regex.find_iter(text).map(|found| found.unwrap().as_str()).collect()
    }

    /// Each number alone, and between numbers the words of GPT-2.
    fn smollm_by_regex(text: &str) -> Vec<&str> {
        let mut words = Vec::new();
        for part in text.split_inclusive(char::is_numeric) {
            let number = part.char_indices().next_back().filter(|(_, last)| last.is_numeric());
            let (plain, number) = part.split_at(number.map_or(part.len(), |(at, _)| at));
            words.extend(by_regex(&GPT2_REGEX, plain));
            words.extend((!number.is_empty()).then_some(number));
        }
        words
    }

    /// Text made mostly of the characters that the rules tell apart.
    fn tricky_text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            "[ \t\r\n\u{a0}\u{2003}\u{85}]{1,4}",
            "'(s|t|re|ve|m|ll|d|S|T|RE|vE|Ll|D|x|r|l|\u{17f})",
            "[a-zA-Zéßあ한\u{301}]{1,4}",
            "[0-9½²٣Ⅷ]{1,4}",
            "[!.,'<>|_\u{200d}👍]{1,4}",
            any::<char>().prop_map(String::from),
        ];
        prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn gpt2_equals_its_regex(text in tricky_text()) {
            prop_assert_eq!(by_hand(Rules::Gpt2, &text), by_regex(&GPT2_REGEX, &text));
        }

        #[test]
        fn qwen2_equals_its_regex(text in tricky_text()) {
            prop_assert_eq!(by_hand(Rules::Qwen2, &text), by_regex(&QWEN2_REGEX, &text));
        }

        #[test]
        fn smollm_equals_its_regexes(text in tricky_text()) {
            prop_assert_eq!(by_hand(Rules::SmolLm, &text), smollm_by_regex(&text));
        }
    }

    #[test]
    fn unknown_names_are_told_with_the_way_out() {
        let message = PreTokenizer::named("tekken").unwrap_err().to_string();
        assert!(message.contains("tekken"), "{message}");
        assert!(message.contains("--tokenizer-pre"), "{message}");
        assert!(message.contains("qwen2"), "{message}");
    }
}
