//! Tokenizers: text to token ids and back.
//!
//! Encoding has two steps. `special` splits the text at special tokens. Then the algorithm of the
//! tokenizer model (`kind`) encodes the text between, one file each: `bpe` merges inside the words
//! of a pre-tokenizer (`pre`), `spm` merges by score, `unigram` maximises the sum of scores,
//! `wordpiece` and `rwkv` match the longest tokens. Decoding joins the bytes of the tokens, which
//! `vocabulary` holds in one buffer.

mod algorithm;
mod alphabet;
mod bpe;
mod bpe_words;
mod char_set;
mod charsmap;
mod check;
mod encode_error;
mod encoder;
mod end_tokens;
mod kind;
mod pre;
mod prefixes;
mod rwkv;
mod spec;
pub(crate) mod special;
mod spm;
mod stripping;
mod text_ids;
mod unigram;
mod vocabulary;
mod wordpiece;

pub(crate) use char_set::CharSet;
pub use encode_error::EncodeError;
pub use kind::TOKENIZER_MODELS;
pub use pre::{Alphabet, PRE_TOKENIZERS, PreTokenizerInfo};
pub use spec::{TokenType, TokenizerError, TokenizerSpec};

use std::borrow::Cow;
use std::collections::BTreeSet;

use algorithm::Algorithm;
use encoder::Encoder;
use kind::Kind;
use special::{Segment, Special, Specials};
use vocabulary::Vocabulary;

/// A tokenizer, immutable once built.
///
/// Decoding the ids of a text gives the same bytes if the vocabulary has a token for every byte
/// (with [`DecodeOptions::show_special`] if special tokens were parsed). Vocabularies that
/// normalise to NFC (`PreTokenizerInfo::composes`) give composed text; `bert` and `t5`
/// vocabularies are lossy.
#[derive(Debug)]
pub struct Tokenizer {
    vocabulary: Vocabulary,
    algorithm: Algorithm,
    specials: Specials,
    end_of_generation: BTreeSet<u32>,
    named: NamedTokens,
    add_bos: bool,
    add_eos: bool,
    /// The most bytes of text that one id stands for; absent where there is no such bound.
    longest: Option<usize>,
}

/// How text becomes ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EncodeOptions {
    /// Add the beginning and end tokens that the vocabulary asks for; a beginning that the text
    /// spells is not added again.
    pub add_special: bool,
    /// Let text spell control tokens. User-defined tokens are matched either way.
    pub parse_special: bool,
}

/// How ids become text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DecodeOptions {
    /// Include the text of control tokens.
    pub show_special: bool,
}

#[derive(Debug, Clone, Copy)]
struct NamedTokens {
    bos: Option<u32>,
    eos: Option<u32>,
    eot: Option<u32>,
    eom: Option<u32>,
    unk: Option<u32>,
    pad: Option<u32>,
}

impl Tokenizer {
    /// Checks `spec` and builds the tables for encoding and decoding.
    ///
    /// # Errors
    ///
    /// An unsupported algorithm or pre-tokenizer, ids outside the vocabulary,
    /// merges that are malformed or name strings that are not tokens, and what
    /// the family cannot encode without: merges, scores that are numbers,
    /// tokens for all bytes or an unknown token.
    pub fn new(spec: TokenizerSpec) -> Result<Self, TokenizerError> {
        let mut spec = spec;
        let kind = Kind::of(&spec)?;
        check::lists(kind, &spec)?;
        kind.complete(&mut spec)?;
        let named = NamedTokens::new(&spec)?;
        let vocabulary = Vocabulary::new(&spec, kind)?;
        check::merges(kind, &spec, &vocabulary)?;
        check::spelling(kind, &spec, &vocabulary)?;
        let specials = vocabulary::specials(&spec);
        Ok(Self {
            algorithm: Algorithm::new(kind, &spec, &vocabulary)?,
            end_of_generation: end_tokens::find(&specials, &named),
            longest: kind.text_bytes(&spec, vocabulary.longest()),
            vocabulary,
            specials,
            named,
            add_bos: spec.add_bos.unwrap_or(false),
            add_eos: spec.add_eos.unwrap_or(false),
        })
    }

    /// The ids of `text`.
    ///
    /// # Errors
    ///
    /// A `gpt2` vocabulary has no token for a byte of the text, or a word is
    /// far longer than any real one.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>, EncodeError> {
        self.encode_with(options, |encoder| encoder.text(text, options.parse_special))
    }

    /// The ids of `bytes`, which need not be UTF-8. Invalid bytes become words of their own.
    ///
    /// # Errors
    ///
    /// Those of [`encode`](Self::encode).
    pub fn encode_bytes(&self, bytes: &[u8], options: EncodeOptions) -> Result<Vec<u32>, EncodeError> {
        self.encode_with(options, |encoder| {
            for chunk in bytes.utf8_chunks() {
                encoder.text(chunk.valid(), options.parse_special);
                encoder.bytes(chunk.invalid());
            }
        })
    }

    /// A lower bound for the number of ids of a text of `bytes` bytes, from the longest token; 0 if
    /// there is no bound.
    pub fn fewest_ids(&self, bytes: usize) -> usize {
        self.longest.map_or(0, |longest| bytes.div_ceil(longest.max(1)))
    }

    /// The text of `ids`; bytes that are not UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32], options: DecodeOptions) -> String {
        let bytes = self.decode_bytes(ids, options);
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }

    /// The exact bytes of `ids`. Ids outside the vocabulary give none.
    ///
    /// Where encoding puts a space before text that begins or follows a
    /// special token, that space is left away.
    pub fn decode_bytes(&self, ids: &[u32], options: DecodeOptions) -> Vec<u8> {
        let adds_prefix = self.algorithm.adds_prefix();
        let mut bytes = Vec::new();
        let mut prefixed = adds_prefix;
        for &id in ids {
            let own = self.token_bytes(id);
            if options.show_special || self.is_shown(id) {
                bytes.extend_from_slice(own.strip_prefix(b" ").filter(|_| prefixed).unwrap_or(own));
            }
            prefixed = adds_prefix && self.is_matched_whole(id);
        }
        bytes
    }

    /// The bytes that token `id` stands for, control tokens included; empty
    /// outside the vocabulary.
    pub fn token_bytes(&self, id: u32) -> &[u8] {
        self.vocabulary.bytes(id)
    }

    /// The bytes of token `id` as text, with U+FFFD for what is not UTF-8.
    pub fn piece(&self, id: u32) -> Cow<'_, str> {
        String::from_utf8_lossy(self.token_bytes(id))
    }

    /// The type of token `id`; [`TokenType::Unused`] outside the vocabulary.
    pub fn token_type(&self, id: u32) -> TokenType {
        self.vocabulary.token_type(id)
    }

    /// Whether decoding includes the token without [`DecodeOptions::show_special`].
    pub fn is_shown(&self, id: u32) -> bool {
        !matches!(self.token_type(id), TokenType::Control | TokenType::Unknown | TokenType::Unused)
    }

    /// Whether encoding begins a new text after token `id`. A user-defined
    /// token that stands for a space may also be the result of merges, after
    /// which text goes on.
    fn is_matched_whole(&self, id: u32) -> bool {
        match self.token_type(id) {
            TokenType::Control | TokenType::Unknown => true,
            TokenType::UserDefined => !self.token_bytes(id).contains(&b' '),
            _ => false,
        }
    }

    /// The control or user-defined token with exactly the text `text`.
    pub fn special_token(&self, text: &str) -> Option<u32> {
        self.specials.id(text)
    }

    /// The number of tokens; ids are below it.
    pub fn vocab_len(&self) -> usize {
        self.vocabulary.len()
    }

    /// The beginning-of-sequence token.
    pub fn bos(&self) -> Option<u32> {
        self.named.bos
    }

    /// The end-of-sequence token.
    pub fn eos(&self) -> Option<u32> {
        self.named.eos
    }

    /// The unknown token.
    pub fn unk(&self) -> Option<u32> {
        self.named.unk
    }

    /// The padding token.
    pub fn pad(&self) -> Option<u32> {
        self.named.pad
    }

    /// Whether encoding with specials begins with [`bos`](Self::bos).
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether encoding with specials ends with [`eos`](Self::eos).
    pub fn adds_eos(&self) -> bool {
        self.add_eos
    }

    /// Whether a model that emits token `id` has ended its answer.
    pub fn is_end_of_generation(&self, id: u32) -> bool {
        self.end_of_generation.contains(&id)
    }

    /// All tokens that end an answer: the named ends of sequence, turn and
    /// message, and the special tokens known by name to do so.
    pub fn end_of_generation(&self) -> &BTreeSet<u32> {
        &self.end_of_generation
    }

    /// An estimate of the bytes held on the heap.
    pub fn memory_bytes(&self) -> usize {
        self.vocabulary.memory_bytes() + self.specials.memory_bytes() + self.algorithm.memory_bytes()
    }

    /// The control and user-defined tokens.
    pub(crate) fn specials(&self) -> &Specials {
        &self.specials
    }

    /// Encodes a rendering in which `mark` breaks the special tokens that must
    /// not count: those left unbroken become their ids, everything else is
    /// plain text once the marks are gone. Begins with one BOS if the
    /// vocabulary asks for it.
    pub(crate) fn encode_marked(&self, rendering: &str, mark: char) -> Result<Vec<u32>, EncodeError> {
        let mut encoder = Encoder::new(self);
        let unbroken = |_: &Special, after: &str| !after.starts_with(mark);
        self.specials.split(rendering, unbroken, |segment| match segment {
            Segment::Token(id) => encoder.special(id),
            Segment::Text(text) if text.contains(mark) => encoder.plain(&text.replace(mark, "")),
            Segment::Text(text) => encoder.plain(text),
        });
        let mut ids = encoder.finish()?;
        if let (true, Some(bos)) = (self.add_bos, self.named.bos)
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        Ok(ids)
    }

    fn encode_with(
        &self,
        options: EncodeOptions,
        fill: impl FnOnce(&mut Encoder<'_>),
    ) -> Result<Vec<u32>, EncodeError> {
        let mut encoder = Encoder::new(self);
        let bos = self.named.bos.filter(|_| options.add_special && self.add_bos);
        let eos = self.named.eos.filter(|_| options.add_special && self.add_eos);
        encoder.ids.extend(bos);
        fill(&mut encoder);
        let mut ids = encoder.finish()?;
        if bos.is_some() && options.parse_special && ids.get(1).copied() == bos {
            ids.remove(0);
        }
        ids.extend(eos);
        Ok(ids)
    }
}

impl NamedTokens {
    fn new(spec: &TokenizerSpec) -> Result<Self, TokenizerError> {
        let tokens = spec.tokens.len();
        let checked = |name: &'static str, id: Option<u32>| match id {
            Some(id) if id as usize >= tokens => Err(TokenizerError::IdOutOfRange { name, id, tokens }),
            _ => Ok(id),
        };
        let named = Self {
            bos: checked("bos", spec.bos)?,
            eos: checked("eos", spec.eos)?,
            eot: checked("eot", spec.eot)?,
            eom: checked("eom", spec.eom)?,
            unk: checked("unk", spec.unk)?,
            pad: checked("pad", spec.pad)?,
        };
        if spec.add_bos == Some(true) && named.bos.is_none() {
            return Err(TokenizerError::MissingToken("bos"));
        }
        if spec.add_eos == Some(true) && named.eos.is_none() {
            return Err(TokenizerError::MissingToken("eos"));
        }
        Ok(named)
    }
}

#[cfg(test)]
mod tests;
