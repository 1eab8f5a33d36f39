//! Checks a tokenizer specification.
//!
//! A vocabulary without its scores or merges would encode to wrong ids, and one without tokens for
//! some bytes would drop text. Both are errors.

use super::bpe::NO_TOKEN;
use super::kind::Kind;
use super::vocabulary::{Vocabulary, byte_tokens};
use super::{TokenType, TokenizerError, TokenizerSpec};

/// Checks the lists that describe tokens: one entry for each, and scores that are numbers where
/// they are read.
pub(super) fn lists(kind: Kind, spec: &TokenizerSpec) -> Result<(), TokenizerError> {
    let tokens = spec.tokens.len();
    for (key, entries) in [(TYPES, spec.token_types.len()), (SCORES, spec.scores.len())] {
        if entries != 0 && entries != tokens {
            return Err(TokenizerError::EntryCount { key, entries, tokens });
        }
    }
    if !matches!(kind, Kind::SentencePiece | Kind::Unigram) {
        return Ok(());
    }
    if spec.scores.is_empty() {
        return Err(TokenizerError::MissingScores { model: spec.model.clone(), tokens });
    }
    match spec.scores.iter().position(|score| !score.is_finite()) {
        Some(id) => Err(TokenizerError::Score { id: id as u32, score: spec.scores[id].to_string() }),
        None => Ok(()),
    }
}

const TYPES: &str = "token_type";
const SCORES: &str = "scores";

/// Refuses a family of merges without merges, unless no token is longer than what merging begins
/// with.
pub(super) fn merges(
    kind: Kind,
    spec: &TokenizerSpec,
    vocabulary: &Vocabulary,
) -> Result<(), TokenizerError> {
    if !spec.merges.is_empty() || !matches!(kind, Kind::ByteLevel | Kind::Characters) {
        return Ok(());
    }
    let merged = |id: &u32| {
        let bytes = vocabulary.bytes(*id);
        vocabulary.token_type(*id) == TokenType::Normal
            && match kind {
                Kind::ByteLevel => bytes.len() > 1,
                // Runs of line feeds are taken whole.
                _ => String::from_utf8_lossy(bytes).chars().count() > 1 && bytes.iter().any(|b| *b != b'\n'),
            }
    };
    let mut longer = (0..vocabulary.len() as u32).filter(merged);
    let Some(id) = longer.next() else { return Ok(()) };
    let token = spec.tokens[id as usize].clone();
    Err(TokenizerError::MissingMerges { id, token, more: longer.count() })
}

/// Refuses a vocabulary that cannot spell every text and has no unknown token in its place.
///
/// Byte-level ones are not refused: well-known models lack bytes that hardly any text has, and name
/// no token for them that means unknown. A text with such a byte is refused instead.
pub(super) fn spelling(
    kind: Kind,
    spec: &TokenizerSpec,
    vocabulary: &Vocabulary,
) -> Result<(), TokenizerError> {
    let model = || spec.model.clone();
    match kind {
        _ if spec.unk.is_some() => return Ok(()),
        Kind::ByteLevel => return Ok(()),
        Kind::WordPiece | Kind::Unigram => return Err(TokenizerError::MissingUnknown { model: model() }),
        Kind::Characters | Kind::SentencePiece | Kind::Rwkv => {}
    }
    let tokens = byte_tokens(vocabulary, [TokenType::Byte, TokenType::Normal]);
    let missing = (0..=255u8).filter(|byte| tokens[usize::from(*byte)] == NO_TOKEN);
    let bytes: Vec<u8> = missing.collect();
    if bytes.is_empty() { Ok(()) } else { Err(TokenizerError::MissingBytes { model: model(), bytes }) }
}
