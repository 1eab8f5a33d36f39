//! The tokens of a vocabulary: bytes and types.

use std::collections::HashMap;

use super::alphabet::Decoder;
use super::bpe::{Merges, NO_TOKEN};
use super::kind::Kind;
use super::special::{Special, Specials};
use super::{TokenType, TokenizerError, TokenizerSpec, end_tokens, rwkv, spm};

/// Token bytes in one buffer, with types.
#[derive(Debug)]
pub(super) struct Vocabulary {
    bytes: Vec<u8>,
    /// Where each token ends in `bytes`; it starts where the one before ends.
    ends: Vec<u32>,
    types: Vec<TokenType>,
}

impl Vocabulary {
    /// Decodes the token texts of `spec`.
    pub(super) fn new(spec: &TokenizerSpec, kind: Kind) -> Result<Self, TokenizerError> {
        let count = spec.tokens.len();
        let total: usize = spec.tokens.iter().map(String::len).sum();
        if count == 0 {
            return Err(TokenizerError::EmptyVocabulary);
        }
        if count >= NO_TOKEN as usize || u32::try_from(total).is_err() {
            return Err(TokenizerError::TooLarge);
        }
        let mut vocabulary = Self {
            bytes: Vec::with_capacity(total),
            ends: Vec::with_capacity(count),
            types: (0..count).map(|id| spec.token_type(id)).collect(),
        };
        let decoder = Decoder::new();
        for (id, text) in spec.tokens.iter().enumerate() {
            vocabulary.push(&decoder, kind, id as u32, text)?;
        }
        vocabulary.bytes.shrink_to_fit();
        Ok(vocabulary)
    }

    /// The number of tokens.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of token `id`; empty outside the vocabulary.
    pub(super) fn bytes(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let Some(&end) = self.ends.get(id) else {
            return &[];
        };
        let start = id.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..end as usize]
    }

    /// The bytes of the longest token, whatever its type.
    pub(super) fn longest(&self) -> usize {
        (0..self.len() as u32).map(|id| self.bytes(id).len()).max().unwrap_or(0)
    }

    /// The type of token `id`; `Unused` outside the vocabulary.
    pub(super) fn token_type(&self, id: u32) -> TokenType {
        let known = self.types.get(id as usize).copied();
        known.unwrap_or(TokenType::Unused)
    }

    /// The bytes held on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
            + self.ends.capacity() * size_of::<u32>()
            + self.types.capacity() * size_of::<TokenType>()
    }

    fn push(&mut self, decoder: &Decoder, kind: Kind, id: u32, text: &str) -> Result<(), TokenizerError> {
        match (kind, self.token_type(id)) {
            (Kind::ByteLevel, TokenType::Normal) => decoder.append(text, &mut self.bytes),
            (Kind::Rwkv, TokenType::Normal) => rwkv::append_piece(text, &mut self.bytes),
            (_, TokenType::Normal) => spm::append_piece(text, &mut self.bytes),
            (Kind::SentencePiece, TokenType::UserDefined) => spm::append_piece(text, &mut self.bytes),
            (_, TokenType::Byte) => {
                let byte = parse_byte(text)
                    .ok_or_else(|| TokenizerError::MalformedByte { id, text: text.to_owned() })?;
                self.bytes.push(byte);
            }
            _ => self.bytes.extend_from_slice(text.as_bytes()),
        }
        self.ends.push(self.bytes.len() as u32);
        Ok(())
    }
}

/// Reads `<0xHH>`.
fn parse_byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let two = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    two.then(|| u8::from_str_radix(digits, 16).ok())?
}

/// The token that stands for each single byte: the first of the types
/// `preferred` that has one, otherwise [`NO_TOKEN`].
pub(super) fn byte_tokens(vocabulary: &Vocabulary, preferred: [TokenType; 2]) -> Box<[u32; 256]> {
    let mut tokens = Box::new([NO_TOKEN; 256]);
    for wanted in preferred {
        for id in 0..vocabulary.len() as u32 {
            if let (&[byte], true) = (vocabulary.bytes(id), vocabulary.token_type(id) == wanted) {
                let token = &mut tokens[usize::from(byte)];
                if *token == NO_TOKEN {
                    *token = id;
                }
            }
        }
    }
    tokens
}

/// The tokens that are matched as a whole.
pub(super) fn specials(spec: &TokenizerSpec) -> Specials {
    let texts = spec.tokens.iter().enumerate();
    let special = texts.filter_map(|(id, text)| {
        let token_type = spec.token_type(id);
        let matched = token_type.is_control() || token_type == TokenType::UserDefined;
        matched.then(|| Special {
            text: text.as_str().into(),
            id: id as u32,
            // Whatever its type, a token that ends answers is nothing that plain text may spell.
            control: token_type.is_control() || end_tokens::is_known(text),
            strips: [&spec.left_stripping, &spec.right_stripping].map(|ids| ids.contains(&(id as u32))),
        })
    });
    Specials::new(special.collect())
}

/// Turns the merges of `spec` into pairs of ids.
///
/// A merge that would make a control token is left out: plain text must never
/// become one.
pub(super) fn merges(spec: &TokenizerSpec) -> Result<Merges, TokenizerError> {
    let ids = ids_by_text(spec);
    let mut merges = Merges::with_capacity(spec.merges.len());
    let mut joined = String::new();
    for (rank, text) in spec.merges.iter().enumerate() {
        let (left, right) = parse_merge(rank, text)?;
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        let find = |token: &str| {
            let id = ids.get(token).copied();
            id.ok_or_else(|| TokenizerError::UnknownMergeToken { rank, token: token.to_owned() })
        };
        let (left, right, id) = (find(left)?, find(right)?, find(&joined)?);
        if !spec.token_type(id as usize).is_control() {
            merges.insert(left, right, rank as u32, id);
        }
    }
    Ok(merges)
}

fn parse_merge(rank: usize, text: &str) -> Result<(&str, &str), TokenizerError> {
    match text.split_once(' ') {
        Some((left, right)) if !left.is_empty() && !right.is_empty() && !right.contains(' ') => {
            Ok((left, right))
        }
        _ => Err(TokenizerError::MalformedMerge { rank, text: text.to_owned() }),
    }
}

/// Which id a text has. Of several tokens with one text the ordinary one
/// counts, and among equals the first.
fn ids_by_text(spec: &TokenizerSpec) -> HashMap<&str, u32> {
    let mut ids = HashMap::with_capacity(spec.tokens.len());
    for (id, text) in spec.tokens.iter().enumerate() {
        let kept = ids.entry(text.as_str()).or_insert(id as u32);
        let ordinary = |id: usize| spec.token_type(id) == TokenType::Normal;
        if ordinary(id) && !ordinary(*kept as usize) {
            *kept = id as u32;
        }
    }
    ids
}
