//! Text in and out of a language model: tokenizers, chat templates and the
//! reassembly of streamed tokens into text.
//!
//! This crate is a leaf. It knows no file format, no model and no engine: the
//! caller reads the vocabulary from wherever it is stored, fills a
//! [`TokenizerSpec`], and gets a [`Tokenizer`] that is immutable and can be
//! shared between threads.
//!
//! * [`Tokenizer`] turns text into token ids and back, byte for byte.
//! * [`ChatTemplate`] renders a conversation with the model's own Jinja
//!   template, and [`encode_chat`] turns that rendering into ids without
//!   letting message content spell control tokens.
//! * [`TextStream`] turns the bytes of generated tokens into text that can be
//!   shown at once, and stops at stop strings.
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
