//! RWKV's "world" tokenizer: the longest token at each place, from left to
//! right, over bytes.
//!
//! Peng et al., "Eagle and Finch: RWKV with Matrix-Valued States and Dynamic
//! Recurrence" (2024), section on the RWKV World tokenizer.

use super::TokenType;
use super::prefixes::Prefixes;
use super::vocabulary::Vocabulary;

/// The tables of one vocabulary.
#[derive(Debug)]
pub(super) struct Rwkv {
    prefixes: Prefixes,
    unk: Option<u32>,
}

impl Rwkv {
    /// Sorts the tokens of `vocabulary`; `unk` stands for bytes that begin no token.
    pub(super) fn new(vocabulary: &Vocabulary, unk: Option<u32>) -> Self {
        let ids = 0..vocabulary.len() as u32;
        let text = |id: &u32| matches!(vocabulary.token_type(*id), TokenType::Normal | TokenType::Byte);
        Self { prefixes: Prefixes::new(vocabulary, ids.filter(text)), unk }
    }

    /// Appends the tokens of `bytes`.
    pub(super) fn encode(&self, vocabulary: &Vocabulary, bytes: &[u8], out: &mut Vec<u32>) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut longest = None;
            self.prefixes.of(vocabulary, rest, |id, length| longest = Some((id, length)));
            let length = longest.map_or(1, |(_, length)| length);
            out.extend(longest.map(|(id, _)| id).or(self.unk));
            rest = &rest[length..];
        }
    }

    /// The bytes held on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        self.prefixes.memory_bytes()
    }
}

/// Appends the bytes of a token as this kind of vocabulary spells it: `\\t`,
/// `\\n`, `\\r` and `\\xHH` are single bytes, and any other character after a
/// backslash is itself.
pub(super) fn append_piece(text: &str, out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];
        let hex = rest.strip_prefix('x').and_then(|digits| digits.get(..2));
        let Some(escaped) = rest.chars().next() else { return };
        match (escaped, hex.and_then(|digits| u8::from_str_radix(digits, 16).ok())) {
            ('x', Some(byte)) => {
                out.push(byte);
                rest = &rest[3..];
                continue;
            }
            ('t', _) => out.push(b'\t'),
            ('n', _) => out.push(b'\n'),
            ('r', _) => out.push(b'\r'),
            _ => out.extend_from_slice(escaped.encode_utf8(&mut [0; 4]).as_bytes()),
        }
        rest = &rest[escaped.len_utf8()..];
    }
    out.extend_from_slice(rest.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DecodeOptions, EncodeOptions, Tokenizer, TokenizerSpec};

    fn tokenizer() -> Tokenizer {
        let mut spec = TokenizerSpec { model: "rwkv".into(), ..TokenizerSpec::default() };
        spec.push_token("<s>", TokenType::Control);
        for byte in 0..=255u8 {
            spec.push_token(&format!("\\x{byte:02x}"), TokenType::Normal);
        }
        for text in ["ab", "abcd", "\\n\\n", "\\xe6\\x97", "\\\\"] {
            spec.push_token(text, TokenType::Normal);
        }
        Tokenizer::new(spec).unwrap()
    }

    #[test]
    fn the_longest_token_wins() {
        let tokenizer = tokenizer();
        let ids = |text: &str| tokenizer.encode(text, EncodeOptions::default()).unwrap();
        assert_eq!(ids("abcabcd"), [257, 1 + 99, 258]);
        assert_eq!(ids("\n\n\n"), [259, 11]);
        assert_eq!(ids("日"), [260, 1 + 0xa5]);
        assert_eq!(ids("\\"), [1 + 92]);
        assert_eq!(tokenizer.decode(&ids("ab\n日"), DecodeOptions::default()), "ab\n日");
        assert_eq!(tokenizer.encode_bytes(b"\xff", EncodeOptions::default()).unwrap(), [256]);
    }

    #[test]
    fn escapes() {
        let piece = |text: &str| {
            let mut out = Vec::new();
            append_piece(text, &mut out);
            out
        };
        assert_eq!(piece(r"a\x00\t\'\é\xzz\"), b"a\0\t'\xc3\xa9xzz");
    }
}
