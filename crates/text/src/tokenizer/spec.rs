//! The input of [`Tokenizer::new`](super::Tokenizer::new), and its errors.

use super::alphabet;
use super::encode_error::named;
use super::kind::TOKENIZER_MODELS;

/// Everything needed to build a [`Tokenizer`](super::Tokenizer), as a model
/// file stores it.
///
/// How token strings of ordinary tokens are written depends on the family:
/// `gpt2` has them in the printable byte alphabet of GPT-2 (a space is `Ġ`, a
/// line feed is `Ċ`), `rwkv` in escapes (`\\n`, `\\xHH`), and the others write a
/// space as U+2581. Control and user-defined tokens are plain text.
#[derive(Debug, Clone, Default)]
pub struct TokenizerSpec {
    /// The family of the algorithm, one of [`TOKENIZER_MODELS`](crate::TOKENIZER_MODELS).
    pub model: String,
    /// The name of the pre-tokenizer, such as `"qwen2"` or `"smollm"`.
    pub pre: String,
    /// The text of each token, indexed by id.
    pub tokens: Vec<String>,
    /// The type of each token; empty means that all are [`TokenType::Normal`].
    pub token_types: Vec<TokenType>,
    /// The score of each token, a finite number: `llama` makes the token of the highest score
    /// first, `t5` looks for the highest sum. The other families read none.
    pub scores: Vec<f32>,
    /// The merges in order of rank, each two token strings with a space between.
    pub merges: Vec<String>,
    /// The beginning-of-sequence token.
    pub bos: Option<u32>,
    /// The end-of-sequence token.
    pub eos: Option<u32>,
    /// The end-of-turn token.
    pub eot: Option<u32>,
    /// The end-of-message token.
    pub eom: Option<u32>,
    /// The unknown token, which stands for what cannot be spelled; `gpt2` never emits it and `bert`
    /// and `t5` need it.
    pub unk: Option<u32>,
    /// The padding token.
    pub pad: Option<u32>,
    /// The separator, which ends a text in `bert`.
    pub sep: Option<u32>,
    /// Whether encoding with specials begins with `bos`; absent means what is usual in the family.
    pub add_bos: Option<bool>,
    /// Whether encoding with specials ends with `eos`; absent means no.
    pub add_eos: Option<bool>,
    /// Whether a space is put before text that begins or follows a special token; absent means yes
    /// in `llama` and no in `t5`, the families that read it.
    pub add_space_prefix: Option<bool>,
    /// Whether runs of spaces count as one, and those at the ends as none. `t5` only.
    pub remove_extra_whitespaces: bool,
    /// The normalisation of characters, as SentencePiece stores it: the length of a double array,
    /// the double array and the replacements. `t5` only.
    pub precompiled_charsmap: Vec<u8>,
    /// Whether text is lowercased; absent means yes. `bert` only.
    pub lowercase: Option<bool>,
    /// Whether accents are taken off; absent means that `lowercase` says it. `bert` only.
    pub strip_accents: Option<bool>,
    /// The tokens that take the white space before them with them.
    pub left_stripping: Vec<u32>,
    /// The tokens that take the white space after them with them.
    pub right_stripping: Vec<u32>,
}

impl TokenizerSpec {
    /// A byte-level specification that holds the 256 single bytes (id = byte)
    /// and the results of `merges` in order (ids from 256 on).
    ///
    /// Meant for tests and small generated models. Tokens added later with
    /// [`push_token`](Self::push_token) follow.
    pub fn byte_level(pre: &str, merges: &[&str]) -> Self {
        let mut spec = Self { model: "gpt2".to_owned(), pre: pre.to_owned(), ..Self::default() };
        for byte in 0..=255u8 {
            spec.push_token(&alphabet::char_of(byte).to_string(), TokenType::Normal);
        }
        for merge in merges {
            spec.push_token(&merge.replace(' ', ""), TokenType::Normal);
            spec.merges.push((*merge).to_owned());
        }
        spec
    }

    /// Appends a token and returns its id.
    pub fn push_token(&mut self, text: &str, token_type: TokenType) -> u32 {
        self.token_types.resize(self.tokens.len(), TokenType::Normal);
        self.tokens.push(text.to_owned());
        self.token_types.push(token_type);
        (self.tokens.len() - 1) as u32
    }

    /// The type of token `id`, `Normal` where no types are given.
    pub(super) fn token_type(&self, id: usize) -> TokenType {
        self.token_types.get(id).copied().unwrap_or_default()
    }
}

/// What kind of text a token stands for, with the numbers that GGUF uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum TokenType {
    /// Ordinary text, written in the byte alphabet.
    #[default]
    Normal = 1,
    /// The placeholder for what the vocabulary cannot spell; never shown.
    Unknown = 2,
    /// Markup of the conversation, such as `<|im_end|>`; not shown by default
    /// and matched in text only on request.
    Control = 3,
    /// A token that is matched in any text before the merges run.
    UserDefined = 4,
    /// A hole in the vocabulary; never produced and never shown.
    Unused = 5,
    /// A single byte spelled `<0xHH>`.
    Byte = 6,
}

impl TokenType {
    /// The type with GGUF's number `value`, if there is one.
    pub fn from_gguf(value: i64) -> Option<Self> {
        Some(match value {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }

    /// Whether the token is matched in text only when specials are parsed.
    pub(super) fn is_control(self) -> bool {
        matches!(self, Self::Control | Self::Unknown)
    }
}

fn supported_models() -> String {
    TOKENIZER_MODELS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// Why a [`TokenizerSpec`] cannot become a tokenizer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The algorithm is not one that this crate implements.
    #[error("tokenizer model '{name}' is not supported; supported: {supported}", name = .0, supported = supported_models())]
    UnknownModel(String),
    /// The pre-tokenizer is not one that this crate implements.
    #[error(
        "pre-tokenizer '{name}' is not supported; supported: {supported}. \
         If the model splits text like one of these, choose it with `tokenizer_pre`"
    )]
    UnknownPre {
        /// The name found in the specification.
        name: String,
        /// The names that would be accepted.
        supported: String,
    },
    /// The normalisation table is cut off.
    #[error("the table of characters (precompiled_charsmap) is malformed")]
    MalformedCharsmap,
    /// There are no tokens at all.
    #[error("the vocabulary has no tokens")]
    EmptyVocabulary,
    /// There are more tokens, or more bytes of token text, than ids can name.
    #[error("the vocabulary is too large")]
    TooLarge,
    /// A list that describes tokens has another length than the list of tokens.
    #[error("tokenizer.ggml.{key} has {entries} entries for {tokens} tokens")]
    EntryCount {
        /// Which list, such as `scores`.
        key: &'static str,
        /// How many entries it has.
        entries: usize,
        /// How many tokens there are.
        tokens: usize,
    },
    /// A token has a type that there is not.
    #[error("tokenizer.ggml.token_type: token {id} has the type {number}; there are 1 to 6")]
    UnknownType {
        /// The id of the token.
        id: u32,
        /// The number of its type.
        number: i64,
    },
    /// There are no scores, and the family encodes by scores.
    #[error("tokenizer.ggml.scores is missing; the model '{model}' needs one for each of {tokens} tokens")]
    MissingScores {
        /// The name of the family.
        model: String,
        /// How many tokens there are.
        tokens: usize,
    },
    /// A score is no finite number.
    #[error("tokenizer.ggml.scores: token {id} has the score {score}, which is not a finite number")]
    Score {
        /// The id of the token.
        id: u32,
        /// Its score.
        score: String,
    },
    /// There are no merges, and tokens that only merges make.
    #[error(
        "tokenizer.ggml.merges is missing or empty; without merges no text becomes token {id}, '{token}', or {more} others"
    )]
    MissingMerges {
        /// The id of the first such token.
        id: u32,
        /// Its text.
        token: String,
        /// How many others there are.
        more: usize,
    },
    /// Some bytes have no token, and no token stands for what has none.
    #[error(
        "the vocabulary has no token for {bytes}, and tokenizer.ggml.unknown_token_id, which the model '{model}' needs \
         then, is missing", bytes = named(.bytes)
    )]
    MissingBytes {
        /// The name of the family.
        model: String,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// No token stands for what has none.
    #[error(
        "tokenizer.ggml.unknown_token_id is missing; the model '{model}' needs it for what it cannot spell"
    )]
    MissingUnknown {
        /// The name of the family.
        model: String,
    },
    /// One of the named tokens lies outside the vocabulary.
    #[error("{name} token {id} is outside the vocabulary of {tokens} tokens")]
    IdOutOfRange {
        /// Which of the named tokens, such as `bos`.
        name: &'static str,
        /// The id given for it.
        id: u32,
        /// How many tokens there are.
        tokens: usize,
    },
    /// A token is to be added to every text, but it is not named.
    #[error("add_{0} is set but the vocabulary names no {0} token")]
    MissingToken(&'static str),
    /// A token of the byte type is not spelled `<0xHH>`.
    #[error("byte token {id} is spelled '{text}', not <0xHH>")]
    MalformedByte {
        /// The id of the token.
        id: u32,
        /// Its text.
        text: String,
    },
    /// A merge is not two token strings with one space between.
    #[error("merge {rank} is malformed: '{text}'")]
    MalformedMerge {
        /// The position of the merge in the list.
        rank: usize,
        /// Its text.
        text: String,
    },
    /// A merge names, or makes, a string that is not a token.
    #[error("merge {rank} names '{token}', which is not in the vocabulary")]
    UnknownMergeToken {
        /// The position of the merge in the list.
        rank: usize,
        /// The string that is not a token.
        token: String,
    },
}
