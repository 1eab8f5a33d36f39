//! Encodes one text: special tokens, and the text between them.

use super::algorithm::Algorithm;
use super::bpe_words::BpeEncoder;
use super::special::{Segment, Special};
use super::spm::SpmMerger;
use super::{EncodeError, Tokenizer};

/// Collects the ids of one text.
pub(super) struct Encoder<'a> {
    tokenizer: &'a Tokenizer,
    words: Words<'a>,
    pub(super) ids: Vec<u32>,
    /// Whether what comes next begins the text or follows a special token.
    fresh: bool,
}

/// The algorithm at work, with its buffers.
enum Words<'a> {
    Bpe(BpeEncoder<'a>),
    SentencePiece(Box<SpmMerger<'a>>),
    /// The others keep no buffers.
    Plain(&'a Algorithm),
}

impl<'a> Encoder<'a> {
    /// An encoder that has seen no text.
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Self {
        let vocabulary = &tokenizer.vocabulary;
        let words = match &tokenizer.algorithm {
            Algorithm::Bpe(bpe) => Words::Bpe(BpeEncoder::new(bpe, vocabulary)),
            Algorithm::SentencePiece(spm) => Words::SentencePiece(Box::new(SpmMerger::new(spm, vocabulary))),
            other => Words::Plain(other),
        };
        Self { tokenizer, words, ids: Vec::new(), fresh: true }
    }

    /// Text that may spell special tokens.
    pub(super) fn text(&mut self, text: &str, parse_special: bool) {
        let specials = &self.tokenizer.specials;
        let wanted = |special: &Special, _: &str| parse_special || !special.control;
        specials.split(text, wanted, |segment| match segment {
            Segment::Token(id) => self.special(id),
            Segment::Text(text) => self.plain(text),
        });
    }

    /// A special token.
    pub(super) fn special(&mut self, id: u32) {
        self.ids.push(id);
        self.fresh = true;
    }

    /// Text that spells no special tokens.
    pub(super) fn plain(&mut self, text: &str) {
        let (vocabulary, ids) = (&self.tokenizer.vocabulary, &mut self.ids);
        match &mut self.words {
            Words::Bpe(encoder) => encoder.text(text, ids),
            Words::SentencePiece(merger) => merger.text(text, self.fresh, ids),
            Words::Plain(Algorithm::WordPiece(wordpiece)) => wordpiece.encode(vocabulary, text, ids),
            Words::Plain(Algorithm::Unigram(unigram)) => unigram.encode(vocabulary, text, ids),
            Words::Plain(Algorithm::Rwkv(rwkv)) => rwkv.encode(vocabulary, text.as_bytes(), ids),
            Words::Plain(_) => {}
        }
        self.fresh = false;
    }

    /// The ids, unless some of the text has none.
    pub(super) fn finish(self) -> Result<Vec<u32>, EncodeError> {
        let failure = match self.words {
            Words::Bpe(encoder) => encoder.failure(),
            Words::SentencePiece(merger) => merger.failure(),
            Words::Plain(_) => None,
        };
        failure.map_or(Ok(self.ids), Err)
    }

    /// Bytes that are no text: a word of their own. Families that cannot spell
    /// bytes have an unknown token for all of them together.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let (vocabulary, ids) = (&self.tokenizer.vocabulary, &mut self.ids);
        match &mut self.words {
            Words::Bpe(encoder) => encoder.bytes(bytes, ids),
            Words::SentencePiece(merger) => merger.bytes(bytes, ids),
            Words::Plain(Algorithm::Rwkv(rwkv)) => rwkv.encode(vocabulary, bytes, ids),
            Words::Plain(Algorithm::WordPiece(wordpiece)) => ids.extend(wordpiece.unknown()),
            Words::Plain(Algorithm::Unigram(unigram)) => ids.extend(unigram.unknown()),
            Words::Plain(_) => {}
        }
        self.fresh = false;
    }
}
