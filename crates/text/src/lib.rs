//! Tokenizers, chat templates, and streaming detokenization with stop strings.
//!
//! This crate depends on no other crate of the workspace. The caller reads the vocabulary from its
//! file, fills a [`TokenizerSpec`], and gets a [`Tokenizer`] that is immutable and can be shared
//! between threads.
//!
//! * [`Tokenizer`] encodes text to token ids and decodes ids to text.
//! * [`ChatTemplate`] renders a conversation with the model's Jinja template. [`encode_chat`]
//!   encodes that rendering; message content never becomes control tokens.
//! * [`TextStream`] decodes generated tokens piece by piece and ends at stop strings.
//!
//! ```
//! use minfer_text::{EncodeOptions, Tokenizer, TokenizerSpec};
//!
//! let spec = TokenizerSpec::byte_level("gpt-2", &["h e", "he y"]);
//! let tokenizer = Tokenizer::new(spec)?;
//! let ids = tokenizer.encode("hey", EncodeOptions::default())?;
//! assert_eq!(ids.len(), 1);
//! assert_eq!(tokenizer.token_bytes(ids[0]), b"hey");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod stream;
mod template;
mod tokenizer;

pub use stream::{StopError, StopMatcher, StreamDelta, TextStream, Utf8Stream};
pub use template::{
    BUILTIN_TEMPLATES, ChatTemplate, Message, RenderInput, TEMPLATE_STACK_BYTES, TemplateError,
    builtin_template, encode_chat,
};
pub use tokenizer::{
    Alphabet, DecodeOptions, EncodeError, EncodeOptions, PRE_TOKENIZERS, PreTokenizerInfo, TOKENIZER_MODELS,
    TokenType, Tokenizer, TokenizerError, TokenizerSpec,
};
