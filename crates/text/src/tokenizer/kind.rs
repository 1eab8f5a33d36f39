//! The families of algorithms.

use super::{TokenizerError, TokenizerSpec};

/// How a vocabulary is encoded with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Byte-pair encoding by a list of merges, over bytes.
    ByteLevel,
    /// Byte-pair encoding by scores, over characters, with byte fallback.
    SentencePiece,
}

/// The names that model files use for the families, and what each is.
pub const TOKENIZER_MODELS: &[(&str, &str)] = &[
    ("gpt2", "byte-level BPE: merges by rank over the bytes of words"),
    ("llama", "SentencePiece BPE: merges by score over characters, with byte fallback"),
];

impl Kind {
    /// The family that `spec` names.
    pub(super) fn of(spec: &TokenizerSpec) -> Result<Self, TokenizerError> {
        Ok(match spec.model.as_str() {
            "gpt2" => Self::ByteLevel,
            "llama" => Self::SentencePiece,
            _ => return Err(TokenizerError::UnknownModel(spec.model.clone())),
        })
    }

    /// Whether BOS is added where the vocabulary does not say.
    pub(super) fn adds_bos(self) -> bool {
        self == Self::SentencePiece
    }
}
