//! WordPiece: each word as the longest tokens from left to right.
//!
//! Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers"
//! (2019), and its released tokenizer: white space and punctuation part words,
//! text is lowercased and loses its accents, and a word that cannot be spelled
//! is the unknown token. Lossy: decoding gives words with one space between.

use regex_syntax::hir::{Class, HirKind};
use unicode_normalization::UnicodeNormalization;

use super::text_ids::TextIds;
use super::vocabulary::Vocabulary;
use super::{TokenType, TokenizerSpec};

/// The tables of one vocabulary, whose tokens begin with a space where they
/// begin a word.
#[derive(Debug)]
pub(super) struct WordPiece {
    ids: TextIds,
    longest: usize,
    unk: Option<u32>,
    lowercase: bool,
    strip_accents: bool,
    punctuation: CharSet,
    controls: CharSet,
    marks: CharSet,
}

impl WordPiece {
    /// Tabulates the tokens of `spec`, which are `vocabulary`.
    pub(super) fn new(spec: &TokenizerSpec, vocabulary: &Vocabulary) -> Self {
        let tokens = || {
            let ids = 0..vocabulary.len() as u32;
            ids.filter(|&id| {
                vocabulary.token_type(id) == TokenType::Normal && !vocabulary.bytes(id).is_empty()
            })
        };
        let lowercase = spec.lowercase.unwrap_or(true);
        Self {
            ids: TextIds::new(vocabulary, tokens()),
            longest: tokens().map(|id| vocabulary.bytes(id).len()).max().unwrap_or(0),
            unk: spec.unk,
            lowercase,
            strip_accents: spec.strip_accents.unwrap_or(lowercase),
            punctuation: CharSet::new(r"[\p{P}!-/:-@\[-`{-~]"),
            controls: CharSet::new(r"[\p{Cc}\p{Cf}\p{Co}]"),
            marks: CharSet::new(r"\p{M}"),
        }
    }

    /// Appends the tokens of `text`.
    pub(super) fn encode(&self, vocabulary: &Vocabulary, text: &str, out: &mut Vec<u32>) {
        let mut word = String::new();
        for character in text.chars() {
            if character.is_whitespace() {
                self.word(vocabulary, &mut word, out);
                continue;
            }
            let Some(character) = self.normalised(character) else { continue };
            if self.punctuation.contains(character) || is_chinese(character) {
                self.word(vocabulary, &mut word, out);
                self.push(&mut word, character);
                self.word(vocabulary, &mut word, out);
            } else {
                self.push(&mut word, character);
            }
        }
        self.word(vocabulary, &mut word, out);
    }

    /// The unknown token, for bytes that are no text.
    pub(super) fn unknown(&self) -> Option<u32> {
        self.unk
    }

    /// The bytes held on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        let sets = [&self.punctuation, &self.controls, &self.marks];
        self.ids.memory_bytes() + sets.map(CharSet::memory_bytes).iter().sum::<usize>()
    }

    /// The character without its accents; `None` where nothing is left.
    fn normalised(&self, character: char) -> Option<char> {
        let base = match self.strip_accents {
            true => std::iter::once(character).nfd().next().unwrap_or(character),
            false => character,
        };
        let dropped = matches!(base, '\0' | '\u{fffd}')
            || self.controls.contains(base)
            || self.strip_accents && self.marks.contains(base);
        (!dropped).then_some(base)
    }

    fn push(&self, word: &mut String, character: char) {
        match self.lowercase {
            true => word.extend(character.to_lowercase().next()),
            false => word.push(character),
        }
    }

    /// Appends the tokens of a word and empties it.
    fn word(&self, vocabulary: &Vocabulary, word: &mut String, out: &mut Vec<u32>) {
        if word.is_empty() {
            return;
        }
        word.insert(0, ' ');
        let before = out.len();
        let mut rest = word.as_str();
        while !rest.is_empty() {
            let ends = (1..=rest.len().min(self.longest)).rev();
            let mut ends = ends.filter(|&end| rest.is_char_boundary(end));
            let found = ends.find_map(|end| Some((end, self.ids.get(vocabulary, &rest.as_bytes()[..end])?)));
            let Some((end, id)) = found else {
                out.truncate(before);
                out.extend(self.unk);
                break;
            };
            out.push(id);
            rest = &rest[end..];
        }
        word.clear();
    }
}

/// The ideographs that are words of their own.
fn is_chinese(character: char) -> bool {
    matches!(character,
        '\u{4e00}'..='\u{9fff}' | '\u{3400}'..='\u{4dbf}' | '\u{20000}'..='\u{2a6df}' |
        '\u{2a700}'..='\u{2b73f}' | '\u{2b740}'..='\u{2b81f}' | '\u{2b920}'..='\u{2ceaf}' |
        '\u{f900}'..='\u{faff}' | '\u{2f800}'..='\u{2fa1f}')
}

/// The characters of a regex class, as ranges in order.
#[derive(Debug)]
struct CharSet {
    ranges: Vec<(char, char)>,
}

impl CharSet {
    fn new(pattern: &str) -> Self {
        let parsed = regex_syntax::parse(pattern).expect("the pattern is a constant");
        let HirKind::Class(Class::Unicode(class)) = parsed.kind() else {
            unreachable!("the pattern is a class of characters")
        };
        Self { ranges: class.iter().map(|range| (range.start(), range.end())).collect() }
    }

    fn contains(&self, character: char) -> bool {
        let after = self.ranges.partition_point(|&(start, _)| start <= character);
        after > 0 && character <= self.ranges[after - 1].1
    }

    fn memory_bytes(&self) -> usize {
        self.ranges.capacity() * size_of::<(char, char)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DecodeOptions, EncodeOptions, Tokenizer};

    fn tokenizer(lowercase: bool) -> Tokenizer {
        let mut spec =
            TokenizerSpec { model: "bert".into(), lowercase: Some(lowercase), ..TokenizerSpec::default() };
        spec.unk = Some(spec.push_token("[UNK]", TokenType::Unknown));
        spec.bos = Some(spec.push_token("[CLS]", TokenType::Control));
        spec.sep = Some(spec.push_token("[SEP]", TokenType::Control));
        for text in ["▁un", "▁able", "able", "▁the", "▁,", "▁cafe", "s", "▁Café", "▁日", "a", "▁a"]
        {
            spec.push_token(text, TokenType::Normal);
        }
        Tokenizer::new(spec).unwrap()
    }

    #[test]
    fn longest_pieces_of_words_between_cls_and_sep() {
        let tokenizer = tokenizer(true);
        let ids = |text: &str| tokenizer.encode(text, EncodeOptions::default()).unwrap();
        assert_eq!(ids("unable Able,the"), [3, 5, 4, 7, 6]);
        assert_eq!(ids("Cafés  日日\0"), [8, 9, 11, 11]);
        assert_eq!(ids("xable the"), [0, 6]);
        assert_eq!(ids("unx"), [0]);
        assert_eq!(ids(" \t"), [] as [u32; 0]);
        let added = EncodeOptions { add_special: true, parse_special: false };
        assert_eq!(tokenizer.encode("the", added).unwrap(), [1, 6, 2]);
        assert_eq!(tokenizer.decode(&ids("unable , the"), DecodeOptions::default()), "unable , the");
    }

    #[test]
    fn cased_vocabularies_keep_accents() {
        let tokenizer = tokenizer(false);
        let ids = |text: &str| tokenizer.encode(text, EncodeOptions::default()).unwrap();
        assert_eq!(ids("Café"), [10]);
        assert_eq!(ids("café"), [0]);
    }
}
