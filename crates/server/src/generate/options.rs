//! Options of a generation that all APIs share.

use minfer::SamplingParams;
use serde_json::Value as Json;

/// How answers are generated.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// The most tokens to generate; `None` goes on to the end of the context.
    pub max_tokens: Option<u32>,
    /// End-of-generation tokens are banned until this many tokens are generated.
    pub min_tokens: u32,
    /// Seed of the random draws; `None` draws one and reports it.
    pub seed: Option<u64>,
    /// The text ends before the first of these.
    pub stop: Vec<String>,
    /// End-of-generation tokens are banned.
    pub ignore_eos: bool,
    /// How many answers.
    pub n: u32,
    /// Log-probabilities of each token, with this many alternatives.
    pub logprobs: Option<u32>,
    /// Whether cached KV rows of earlier requests may be used.
    pub cache_prompt: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            sampling: SamplingParams::default(),
            max_tokens: None,
            min_tokens: 0,
            seed: None,
            stop: Vec::new(),
            ignore_eos: false,
            n: 1,
            logprobs: None,
            cache_prompt: true,
        }
    }
}

/// The form that an answer must have.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum OutputFormat {
    /// Any text.
    #[default]
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON that a schema describes.
    JsonSchema(Json),
    /// Text that a regular expression matches as a whole.
    Regex(String),
    /// Text of a grammar in llguidance's dialect of Lark.
    Lark(String),
}
