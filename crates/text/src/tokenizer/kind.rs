//! The tokenizer models (`tokenizer.ggml.model`) and their algorithms.

use super::pre::{Alphabet, PreTokenizerInfo};
use super::{TokenizerError, TokenizerSpec};

/// How a vocabulary encodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Byte-pair encoding by a list of merges, over bytes.
    ByteLevel,
    /// Byte-pair encoding by a list of merges, over characters, with byte fallback.
    Characters,
    /// Byte-pair encoding by scores, over characters, with byte fallback.
    SentencePiece,
    /// The longest tokens of each word, from left to right.
    WordPiece,
    /// The tokens with the highest sum of scores.
    Unigram,
    /// The longest tokens, from left to right.
    Rwkv,
}

/// The names that model files use for the families, and what each is.
pub const TOKENIZER_MODELS: &[(&str, &str)] = &[
    ("gpt2", "BPE by rank over the bytes of words, which a pre-tokenizer cuts"),
    ("gemma4", "BPE by rank over characters, with byte fallback"),
    ("llama", "SentencePiece BPE by score over characters, with byte fallback"),
    ("bert", "WordPiece: the longest tokens of each word; lossy"),
    ("t5", "Unigram: the tokens with the highest sum of scores; lossy where it normalises"),
    ("rwkv", "the longest tokens, over bytes"),
];

impl Kind {
    /// The family that `spec` names.
    pub(super) fn of(spec: &TokenizerSpec) -> Result<Self, TokenizerError> {
        Ok(match spec.model.as_str() {
            "gpt2" => match PreTokenizerInfo::named(&spec.pre)?.alphabet {
                Alphabet::Bytes => Self::ByteLevel,
                Alphabet::Marked => Self::Characters,
            },
            "gemma4" => Self::Characters,
            "llama" => Self::SentencePiece,
            "bert" => Self::WordPiece,
            "t5" => Self::Unigram,
            "rwkv" => Self::Rwkv,
            _ => return Err(TokenizerError::UnknownModel(spec.model.clone())),
        })
    }

    /// Fills in what the family takes for granted and `spec` leaves open. Ids
    /// are filled in only where the vocabulary has a control token there.
    pub(super) fn complete(self, spec: &mut TokenizerSpec) -> Result<(), TokenizerError> {
        if spec.model == "gemma4" {
            spec.pre = "gemma4".to_owned();
        }
        let at = |id: usize| spec.token_type(id).is_control().then_some(id as u32);
        let (bos, eos, unk) = match self {
            Self::SentencePiece => (at(1), at(2), at(0)),
            Self::WordPiece => (at(101), spec.sep.or(at(102)), at(100)),
            Self::Unigram => (None, at(1), at(2)),
            Self::ByteLevel | Self::Characters | Self::Rwkv => (None, None, None),
        };
        spec.unk = spec.unk.or(unk);
        spec.bos = spec.bos.or(bos);
        spec.eos = if self == Self::WordPiece { eos.or(spec.eos) } else { spec.eos.or(eos) };
        let (adds_bos, adds_eos) = match self {
            Self::SentencePiece => (true, false),
            Self::WordPiece => (true, true),
            Self::Unigram => (false, true),
            Self::ByteLevel | Self::Characters => (PreTokenizerInfo::named(&spec.pre)?.adds_bos, false),
            Self::Rwkv => (false, false),
        };
        spec.add_bos = spec.add_bos.or(Some(adds_bos && spec.bos.is_some()));
        spec.add_eos = spec.add_eos.or(Some(adds_eos && spec.eos.is_some()));
        Ok(())
    }

    /// The most bytes of text that one id stands for, where no token has more than `longest`;
    /// absent where an id may stand for any number.
    pub(super) fn text_bytes(self, spec: &TokenizerSpec, longest: usize) -> Option<usize> {
        let strips = !spec.left_stripping.is_empty() || !spec.right_stripping.is_empty();
        match self {
            _ if strips => None,
            // Composing takes three bytes to one at most: the jamo of a syllable, the Kelvin sign.
            Self::ByteLevel if PreTokenizerInfo::named(&spec.pre).is_ok_and(|info| info.composes) => {
                Some(longest * 3)
            }
            Self::ByteLevel | Self::Rwkv => Some(longest),
            // U+2581, three bytes, counts as a space.
            Self::Characters | Self::SentencePiece => Some(longest * 3),
            Self::WordPiece | Self::Unigram => None,
        }
    }
}
