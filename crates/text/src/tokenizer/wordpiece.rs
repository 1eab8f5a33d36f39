//! WordPiece: each word as the longest tokens from left to right.
//!
//! Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers" (2019), and its released
//! tokenizer: white space and punctuation part words. Text is decomposed, loses its nonspacing
//! marks (Mn) and is lowercased. A word that cannot be spelled is the unknown token. Lossy:
//! decoding gives words with one space between.

use unicode_normalization::UnicodeNormalization;

use super::char_set::CharSet;
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
            marks: CharSet::new(r"\p{Mn}"),
        }
    }

    /// Appends the tokens of `text`.
    pub(super) fn encode(&self, vocabulary: &Vocabulary, text: &str, out: &mut Vec<u32>) {
        let mut word = Word::default();
        for character in self.normalised(text) {
            if character.is_whitespace() {
                self.word(vocabulary, &mut word, out);
            } else if self.punctuation.contains(character) {
                self.word(vocabulary, &mut word, out);
                word.push(character);
                self.word(vocabulary, &mut word, out);
            } else {
                word.push(character);
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

    /// `text` without controls, with spaces around ideographs, then without accents, then in lower
    /// case.
    fn normalised<'a>(&'a self, text: &'a str) -> impl Iterator<Item = char> + 'a {
        let kept = text.chars().filter(|&c| !matches!(c, '\0' | '\u{fffd}') && !self.is_control(c));
        let apart = kept.flat_map(|character| {
            let space = is_chinese(character).then_some(' ');
            space.into_iter().chain([character]).chain(space)
        });
        let plain: Box<dyn Iterator<Item = char>> = match self.strip_accents {
            true => Box::new(apart.nfd().filter(|&character| !self.marks.contains(character))),
            false => Box::new(apart),
        };
        plain.flat_map(|character| {
            let lower = self.lowercase.then(|| character.to_lowercase());
            let same = (!self.lowercase).then_some(character);
            lower.into_iter().flatten().chain(same)
        })
    }

    /// Three controls are white space; the others, U+0085 among them, are left out.
    fn is_control(&self, character: char) -> bool {
        !matches!(character, '\t' | '\n' | '\r') && self.controls.contains(character)
    }

    /// Appends the tokens of a word and empties it.
    fn word(&self, vocabulary: &Vocabulary, word: &mut Word, out: &mut Vec<u32>) {
        let before = out.len();
        let mut rest = word.text.as_str();
        while !rest.is_empty() {
            let ends = (1..=rest.len().min(self.longest)).rev();
            let mut ends = ends.filter(|&end| word.characters <= LONGEST_WORD && rest.is_char_boundary(end));
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

/// A word with more characters is the unknown token.
const LONGEST_WORD: usize = 100;

/// A word with the space that begins it, and its length without.
#[derive(Default)]
struct Word {
    text: String,
    characters: usize,
}

impl Word {
    fn push(&mut self, character: char) {
        if self.characters == 0 {
            self.text.push(' ');
        }
        // What is too long is not read any further.
        if self.characters <= LONGEST_WORD {
            self.text.push(character);
            self.characters += 1;
        }
    }

    fn clear(&mut self) {
        self.text.clear();
        self.characters = 0;
    }
}

/// The ideographs that are words of their own.
fn is_chinese(character: char) -> bool {
    matches!(character,
        '\u{4e00}'..='\u{9fff}' | '\u{3400}'..='\u{4dbf}' | '\u{20000}'..='\u{2a6df}' |
        '\u{2a700}'..='\u{2b73f}' | '\u{2b740}'..='\u{2b81f}' | '\u{2b920}'..='\u{2ceaf}' |
        '\u{f900}'..='\u{faff}' | '\u{2f800}'..='\u{2fa1f}')
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

    /// A syllable is spelled in its jamo, vowels and finals included.
    #[test]
    fn the_whole_decomposition_is_kept_but_nonspacing_marks() {
        let mut spec = TokenizerSpec { model: "bert".into(), ..TokenizerSpec::default() };
        spec.unk = Some(spec.push_token("[UNK]", TokenType::Unknown));
        for text in ["▁\u{1112}", "\u{1161}", "\u{11ab}", "▁a", "\u{93f}", "i", "▁x", "▁xx", "x"] {
            spec.push_token(text, TokenType::Normal);
        }
        let tokenizer = Tokenizer::new(spec).unwrap();
        let ids = |text: &str| tokenizer.encode(text, EncodeOptions::default()).unwrap();
        assert_eq!(ids("\u{d55c}"), [1, 2, 3]);
        assert_eq!(ids("\u{e1} a\u{301} a\u{93f}"), [4, 4, 4, 5], "a spacing mark stays");
        assert_eq!(ids("a\u{130}"), [4, 6]);
        assert_eq!(ids("x\u{85}x x\u{b}x x\tx"), [8, 8, 7, 7]);
        assert_eq!(ids(&"x".repeat(100)).len(), 99);
        assert_eq!(ids(&"x".repeat(101)), [0]);
        assert_eq!(ids(&format!("{} x", "x\u{301}".repeat(101))), [0, 7], "counted without marks");
    }

    #[test]
    fn cased_vocabularies_keep_accents() {
        let tokenizer = tokenizer(false);
        let ids = |text: &str| tokenizer.encode(text, EncodeOptions::default()).unwrap();
        assert_eq!(ids("Café"), [10]);
        assert_eq!(ids("café"), [0]);
    }
}
