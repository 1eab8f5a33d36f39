//! A request to continue texts, of any API.

use super::options::{Options, OutputFormat};

/// Texts to continue, without a chat template.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CompletionRequest {
    /// The model that the client named.
    pub model: Option<String>,
    /// The texts. Each gets [`Options::n`] answers.
    pub prompts: Vec<Prompt>,
    /// The text that comes after the answer, for models with fill-in-the-middle tokens.
    pub suffix: Option<String>,
    /// Report the prompt before its answer, and its tokens' log-probabilities if they are asked for.
    pub echo: bool,
    /// The form of the answer.
    pub format: OutputFormat,
    /// How answers are generated.
    pub options: Options,
}

/// A text to continue.
#[derive(Debug, Clone, PartialEq)]
pub enum Prompt {
    /// Text; special tokens that it spells become those tokens.
    Text(String),
    /// Token ids, fed as they are.
    Tokens(Vec<u32>),
}
