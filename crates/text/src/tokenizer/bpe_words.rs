//! Byte-pair encoding of a text: normalisation, pre-tokenization, then merges inside each word.

use std::borrow::Cow;

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use super::bpe::{Merger, Merges, NO_TOKEN};
use super::encode_error::{EncodeError, check_word};
use super::kind::Kind;
use super::pre::{PreTokenizer, PreTokenizerInfo};
use super::text_ids::TextIds;
use super::vocabulary::{self, Vocabulary};
use super::{TokenType, TokenizerError, TokenizerSpec};

/// The tables of one vocabulary.
#[derive(Debug)]
pub(super) struct Bpe {
    merges: Merges,
    pre_tokenizer: PreTokenizer,
    /// The token of each single byte, [`NO_TOKEN`] where there is none.
    byte_tokens: Box<[u32; 256]>,
    /// Whether every byte has a token.
    spells_all: bool,
    /// Which token a text is, where that is asked for.
    ids: Option<TextIds>,
    /// Whether merging begins with characters and not with bytes.
    by_character: bool,
    /// Whether a word that is a token is taken whole.
    whole_words: bool,
    /// Whether text is composed before it is cut.
    composes: bool,
}

impl Bpe {
    /// Reads the merges of `spec`, whose tokens are `vocabulary`.
    pub(super) fn new(
        kind: Kind,
        spec: &TokenizerSpec,
        vocabulary: &Vocabulary,
    ) -> Result<Self, TokenizerError> {
        let info = PreTokenizerInfo::named(&spec.pre)?;
        let by_character = kind == Kind::Characters;
        let [first, second] = match by_character {
            true => [TokenType::Byte, TokenType::Normal],
            false => [TokenType::Normal, TokenType::Byte],
        };
        let normal = |id: &u32| vocabulary.token_type(*id) == TokenType::Normal;
        let ids = || TextIds::new(vocabulary, (0..vocabulary.len() as u32).filter(normal));
        let mut byte_tokens = vocabulary::byte_tokens(vocabulary, [first, second]);
        if let (Some(unk), true) = (spec.unk, by_character) {
            byte_tokens.iter_mut().filter(|token| **token == NO_TOKEN).for_each(|token| *token = unk);
        }
        Ok(Self {
            merges: vocabulary::merges(spec)?,
            pre_tokenizer: PreTokenizer::new(info),
            spells_all: !byte_tokens.contains(&NO_TOKEN),
            byte_tokens,
            ids: (by_character || info.whole_words).then(ids),
            by_character,
            whole_words: info.whole_words,
            composes: info.composes,
        })
    }

    /// The bytes held on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        self.merges.memory_bytes()
            + self.pre_tokenizer.memory_bytes()
            + size_of_val(&*self.byte_tokens)
            + self.ids.as_ref().map_or(0, TextIds::memory_bytes)
    }
}

/// Encodes texts; holds the buffers that are reused from word to word.
pub(super) struct BpeEncoder<'a> {
    bpe: &'a Bpe,
    vocabulary: &'a Vocabulary,
    merger: Merger<'a>,
    symbols: Vec<u32>,
    failure: Option<EncodeError>,
}

impl<'a> BpeEncoder<'a> {
    /// An encoder over the tables of `bpe`.
    pub(super) fn new(bpe: &'a Bpe, vocabulary: &'a Vocabulary) -> Self {
        Self { bpe, vocabulary, merger: Merger::new(&bpe.merges), symbols: Vec::new(), failure: None }
    }

    /// Appends the tokens of `text`.
    pub(super) fn text(&mut self, text: &str, out: &mut Vec<u32>) {
        let bpe = self.bpe;
        let text = if bpe.composes { composed(text) } else { Cow::Borrowed(text) };
        bpe.pre_tokenizer.split(&text, |word| self.word(word, out));
    }

    /// Why some of what was seen has no tokens.
    pub(super) fn failure(self) -> Option<EncodeError> {
        self.failure
    }

    /// Appends the tokens of bytes that are no text, as one word.
    pub(super) fn bytes(&mut self, bytes: &[u8], out: &mut Vec<u32>) {
        if !self.admits(bytes) {
            return;
        }
        let tokens = &self.bpe.byte_tokens;
        self.merger.merge(bytes.iter().map(|&byte| tokens[usize::from(byte)]), out);
    }

    /// Whether a word can be encoded; notes why if it cannot.
    fn admits(&mut self, word: &[u8]) -> bool {
        if let Err(error) = check_word(word.len()) {
            self.failure = Some(error);
        } else if !self.bpe.spells_all {
            word.iter()
                .filter(|&&byte| self.bpe.byte_tokens[usize::from(byte)] == NO_TOKEN)
                .for_each(|&byte| note(&mut self.failure, byte));
        }
        self.failure.is_none()
    }

    fn word(&mut self, word: &str, out: &mut Vec<u32>) {
        let Some(ids) = &self.bpe.ids else { return self.bytes(word.as_bytes(), out) };
        // Vocabularies of characters have tokens for runs of line feeds that no merges make.
        let whole = self.bpe.whole_words || word.starts_with('\n');
        let id = if whole { ids.get(self.vocabulary, word.as_bytes()) } else { None };
        match id {
            Some(id) => out.push(id),
            None if self.bpe.by_character => self.characters(ids, word, out),
            None => self.bytes(word.as_bytes(), out),
        }
    }

    /// Merges characters; those that are no token are spelled in bytes, which
    /// take part in no merge.
    fn characters(&mut self, ids: &TextIds, word: &str, out: &mut Vec<u32>) {
        // Every byte has a token, or the unknown one.
        if let Err(error) = check_word(word.len()) {
            self.failure = Some(error);
            return;
        }
        self.symbols.clear();
        for character in word.chars() {
            // U+2581 is how the vocabulary writes a space.
            let character = if character == '\u{2581}' { ' ' } else { character };
            let text = character.encode_utf8(&mut [0; 4]).to_owned();
            match ids.get(self.vocabulary, text.as_bytes()) {
                Some(id) => self.symbols.push(id),
                None => {
                    self.symbols.extend(text.bytes().map(|byte| self.bpe.byte_tokens[usize::from(byte)]));
                }
            }
        }
        self.merger.merge(self.symbols.iter().copied(), out);
    }
}

/// `text` in Unicode's normalisation form C; text that is in it already is not copied.
fn composed(text: &str) -> Cow<'_, str> {
    // Characters below U+0300 are composed and join no character before them. Their first bytes are
    // below 0xcc.
    let simple = text.bytes().all(|byte| byte < 0xcc);
    if simple || is_nfc_quick(text.chars()) == IsNormalized::Yes {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.nfc().collect())
}

/// Adds a byte to those that cannot be spelled.
fn note(failure: &mut Option<EncodeError>, byte: u8) {
    match failure {
        Some(EncodeError::Unspelled { bytes }) => {
            if let Err(at) = bytes.binary_search(&byte) {
                bytes.insert(at, byte);
            }
        }
        Some(_) => {}
        None => *failure = Some(EncodeError::Unspelled { bytes: vec![byte] }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_text_that_is_not_composed_is_copied() {
        for text in ["", "plain", "\u{e9}t\u{e9} \u{2ff}", "\u{4e00}\u{ac00}\u{416}", "x\u{20e3}"] {
            assert!(matches!(composed(text), Cow::Borrowed(same) if same == text), "{text:?}");
        }
        for (text, expected) in [
            ("e\u{301}te\u{301}", "\u{e9}t\u{e9}"),
            ("\u{1112}\u{1161}\u{11ab}", "\u{d55c}"),
            ("\u{212b}\u{f900}\u{958}", "\u{c5}\u{8c48}\u{915}\u{93c}"),
            ("q\u{307}\u{323}", "q\u{323}\u{307}"),
        ] {
            assert_eq!(composed(text), expected);
        }
    }
}
