//! The encoding tables of one vocabulary, by algorithm.

use super::bpe_words::Bpe;
use super::kind::Kind;
use super::rwkv::Rwkv;
use super::spm::Spm;
use super::unigram::Unigram;
use super::vocabulary::Vocabulary;
use super::wordpiece::WordPiece;
use super::{TokenizerError, TokenizerSpec};

/// What encodes the text between special tokens.
#[derive(Debug)]
pub(super) enum Algorithm {
    Bpe(Box<Bpe>),
    SentencePiece(Spm),
    WordPiece(Box<WordPiece>),
    Unigram(Box<Unigram>),
    Rwkv(Rwkv),
}

impl Algorithm {
    /// Builds the tables of `spec`, whose tokens are `vocabulary`.
    pub(super) fn new(
        kind: Kind,
        spec: &TokenizerSpec,
        vocabulary: &Vocabulary,
    ) -> Result<Self, TokenizerError> {
        Ok(match kind {
            Kind::ByteLevel | Kind::Characters => Self::Bpe(Box::new(Bpe::new(kind, spec, vocabulary)?)),
            Kind::SentencePiece => Self::SentencePiece(Spm::new(spec, vocabulary)),
            Kind::WordPiece => Self::WordPiece(Box::new(WordPiece::new(spec, vocabulary))),
            Kind::Unigram => Self::Unigram(Box::new(Unigram::new(spec, vocabulary)?)),
            Kind::Rwkv => Self::Rwkv(Rwkv::new(vocabulary, spec.unk)),
        })
    }

    /// Whether a space is put before text that begins or follows a special token.
    pub(super) fn adds_prefix(&self) -> bool {
        match self {
            Self::SentencePiece(spm) => spm.adds_prefix(),
            Self::Unigram(unigram) => unigram.adds_prefix(),
            // The first word begins with a space as the others do.
            Self::WordPiece(_) => true,
            Self::Bpe(_) | Self::Rwkv(_) => false,
        }
    }

    /// The bytes held on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Bpe(bpe) => bpe.memory_bytes(),
            Self::SentencePiece(spm) => spm.memory_bytes(),
            Self::WordPiece(wordpiece) => wordpiece.memory_bytes(),
            Self::Unigram(unigram) => unigram.memory_bytes(),
            Self::Rwkv(rwkv) => rwkv.memory_bytes(),
        }
    }
}
