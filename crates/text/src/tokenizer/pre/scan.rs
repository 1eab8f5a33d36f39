//! Hand-written versions of the commonest expressions, for speed. They return the same pieces as
//! the expression; tests compare them with a regex engine.

use super::classes::{CharClass, CharClasses};

/// One of the expressions for words, which differ in a few places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Words {
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    Gpt2,
    /// ```text
    /// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,numbers}
    /// | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
    /// ```
    Led {
        /// The most number characters in one piece.
        numbers: usize,
        /// Whether the expression has its first alternative.
        contractions: bool,
    },
}

impl Words {
    pub(super) const GPT2: Self = Self::Gpt2;
    pub(super) const QWEN2: Self = Self::Led { numbers: 1, contractions: true };
    pub(super) const LLAMA3: Self = Self::Led { numbers: 3, contractions: true };
    pub(super) const UFAKZEKA: Self = Self::Led { numbers: 1, contractions: false };

    /// Calls `word` with each piece of `text`, in order and without gaps.
    pub(super) fn split<'t>(self, classes: &CharClasses, text: &'t str, word: &mut dyn FnMut(&'t str)) {
        match self {
            Self::Gpt2 => pieces(classes, text, |scan, at| scan.gpt2_end(at), word),
            Self::Led { numbers, contractions } => {
                pieces(classes, text, |scan, at| scan.led_end(at, numbers, contractions), word);
            }
        }
    }
}

fn pieces<'t>(
    classes: &CharClasses,
    text: &'t str,
    end: impl Fn(&Scan<'_>, usize) -> usize,
    word: &mut dyn FnMut(&'t str),
) {
    let scan = Scan { text, classes };
    let mut start = 0;
    while start < text.len() {
        let next = end(&scan, start);
        word(&text[start..next]);
        start = next;
    }
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

    fn led_end(&self, start: usize, numbers: usize, contractions: bool) -> usize {
        if let Some(end) = contractions.then(|| self.contraction(start, true)).flatten() {
            return end;
        }
        let (first, after) = self.class_at(start).expect("start lies inside the text");
        let next = self.class_at(after).map(|(class, _)| class);
        let led_by = first != CharClass::Number && !self.is_line_end(start);
        match first {
            CharClass::Letter => self.run_end(after, CharClass::Letter),
            _ if led_by && next == Some(CharClass::Letter) => self.run_end(after, CharClass::Letter),
            CharClass::Number => self.numbers_end(start, numbers),
            CharClass::Other => self.line_ends_end(self.run_end(after, CharClass::Other)),
            CharClass::Space if self.is_blank(start) && next == Some(CharClass::Other) => {
                self.line_ends_end(self.run_end(after, CharClass::Other))
            }
            CharClass::Space => self.line_or_spaces_end(start),
        }
    }

    /// The end of at most `most` number characters.
    fn numbers_end(&self, start: usize, most: usize) -> usize {
        let mut end = start;
        for _ in 0..most {
            match self.class_at(end) {
                Some((CharClass::Number, next)) => end = next,
                _ => break,
            }
        }
        end
    }

    /// `'s|'t|'re|'ve|'m|'ll|'d`, of which `any_case` admits every case; U+017F is an s then.
    fn contraction(&self, start: usize, any_case: bool) -> Option<usize> {
        let rest = self.text.as_bytes()[start..].strip_prefix(b"'")?;
        let letter = |index: usize| {
            let byte = *rest.get(index)?;
            Some(if any_case { byte.to_ascii_lowercase() } else { byte })
        };
        if any_case && rest.starts_with("\u{17f}".as_bytes()) {
            return Some(start + 3);
        }
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
    const CONTRACTIONS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|";
    const LED: &str = concat!(
        r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,NUMBERS}| ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    );

    /// The expression of each kind of words.
    static REGEXES: LazyLock<Vec<(Words, Regex)>> = LazyLock::new(|| {
        let led = |contractions: &str, numbers: &str| {
            Regex::new(&format!("{contractions}{}", LED.replace("NUMBERS", numbers))).unwrap()
        };
        vec![
            (Words::GPT2, Regex::new(GPT2).unwrap()),
            (Words::QWEN2, led(CONTRACTIONS, "1")),
            (Words::LLAMA3, led(CONTRACTIONS, "3")),
            (Words::UFAKZEKA, led("", "1")),
        ]
    });
    static CLASSES: LazyLock<CharClasses> = LazyLock::new(CharClasses::new);

    /// Text made mostly of the characters that the rules tell apart.
    fn tricky_text() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            "[ \t\r\n\u{a0}\u{2003}\u{85}]{1,4}",
            "'(s|t|re|ve|m|ll|d|S|T|RE|vE|Ll|D|x|r|l|\u{17f})",
            "[a-zA-Zéßあ한\u{301}]{1,4}",
            "[0-9½²٣Ⅷ]{1,7}",
            "[!.,'<>|_\u{200d}👍]{1,4}",
            any::<char>().prop_map(String::from),
        ];
        prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]

        #[test]
        fn words_by_hand_equal_their_regexes(text in tricky_text()) {
            for (words, regex) in REGEXES.iter() {
                let mut by_hand = Vec::new();
                words.split(&CLASSES, &text, &mut |word| by_hand.push(word));
                let by_regex: Vec<&str> = regex.find_iter(&text).map(|found| found.unwrap().as_str()).collect();
                prop_assert_eq!(by_hand, by_regex, "{:?}", words);
            }
        }
    }
}
