//! A request: the prompt, limits, sampling parameters, stop strings, and what to reuse.

use minfer_text::{StopError, StopMatcher};

use crate::sampler::{ParamError, SamplingParams};
use crate::session::SessionId;

/// One generation: token ids in, text out.
///
/// ```
/// use minfer_engine::Request;
///
/// let request = Request { max_tokens: Some(16), ..Request::new(vec![1, 2, 3]) };
/// assert_eq!(request.validate(100), Ok(()));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Token ids of the prompt, special tokens included; at least one.
    pub prompt: Vec<u32>,
    /// Most tokens to generate; 0 only feeds the prompt. `None` generates up to the end of the
    /// context, or with a context shift `n_ctx` tokens.
    pub max_tokens: Option<u32>,
    /// End-of-generation tokens are masked until this many tokens are generated.
    pub min_tokens: u32,
    /// How tokens are chosen.
    pub sampling: SamplingParams,
    /// Seed of the random draws. If absent, a random one is used and reported.
    pub seed: Option<u64>,
    /// Which of several answers to one prompt this is: it enters the random draws beside the seed.
    pub choice: u32,
    /// The text ends before the first of these; none may be empty.
    pub stop: Vec<String>,
    /// End-of-generation tokens are never chosen.
    pub ignore_eos: bool,
    /// Report each token's log-probability and this many of the most probable ones.
    pub logprobs: Option<u32>,
    /// Report the model's predictions at every position of the prompt.
    pub prompt_logprobs: Option<PromptLogprobs>,
    /// The conversation to continue: KV rows of the beginning that it shares with the prompt are
    /// reused, and it keeps the rows of this request.
    pub session: Option<SessionId>,
    /// What to remove when the context is full. `None` ends the generation there.
    pub context_shift: Option<ContextShift>,
    /// Whether KV rows of earlier requests may be reused. They never are with `prompt_logprobs`.
    pub reuse: bool,
    /// Requests with different salts never share KV rows. A conversation takes requests with the
    /// salt that it was opened with.
    pub salt: Option<u64>,
}

/// Context shift: a full context loses the older half of the tokens behind the kept ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContextShift {
    /// Tokens at the beginning that are never removed.
    pub keep: u32,
}

/// What to report at each position of the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptLogprobs {
    /// How many of the most probable next tokens; 0 reports only the prompt's own next token.
    pub top: u32,
}

impl Request {
    /// A request with default sampling and no limits.
    pub fn new(prompt: Vec<u32>) -> Request {
        Request {
            prompt,
            max_tokens: None,
            min_tokens: 0,
            sampling: SamplingParams::default(),
            seed: None,
            choice: 0,
            stop: Vec::new(),
            ignore_eos: false,
            logprobs: None,
            prompt_logprobs: None,
            session: None,
            context_shift: None,
            reuse: true,
            salt: None,
        }
    }

    /// Checks everything that does not depend on the engine's state.
    ///
    /// # Errors
    /// The first field that cannot be used, by name.
    pub fn validate(&self, vocab: usize) -> Result<(), RequestError> {
        if self.prompt.is_empty() {
            return Err(RequestError::EmptyPrompt);
        }
        let outside = self.prompt.iter().position(|&id| id as usize >= vocab);
        if let Some(index) = outside {
            return Err(RequestError::TokenOutOfRange { index, id: self.prompt[index], vocab });
        }
        StopMatcher::new(self.stop.clone())?;
        let prompt_top = self.prompt_logprobs.map(|wanted| wanted.top);
        for (field, wanted) in [("logprobs", self.logprobs), ("prompt_logprobs", prompt_top)] {
            if let Some(top) = wanted.filter(|&top| top as usize > vocab) {
                return Err(RequestError::TooManyLogprobs { field, top, vocab });
            }
        }
        self.sampling.validate(vocab).map_err(RequestError::Sampling)
    }
}

/// A request that cannot be carried out as it stands.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The prompt is empty.
    #[error("`prompt`: there are no tokens")]
    EmptyPrompt,
    /// A token id that the model does not have.
    #[error("`prompt`: token {id} at index {index} is outside the vocabulary of {vocab} tokens")]
    TokenOutOfRange {
        /// Its index in the prompt.
        index: usize,
        /// The id.
        id: u32,
        /// Number of tokens that the model has.
        vocab: usize,
    },
    /// A stop string that cannot be used.
    #[error("`stop`: {0}")]
    Stop(#[from] StopError),
    /// More alternatives than there are tokens.
    #[error("`{field}`: {top} alternatives are more than the vocabulary of {vocab} tokens")]
    TooManyLogprobs {
        /// `logprobs` or `prompt_logprobs`.
        field: &'static str,
        /// How many were asked for.
        top: u32,
        /// Number of tokens that the model has.
        vocab: usize,
    },
    /// A context shift that keeps the whole context.
    #[error("`keep`: {keep} tokens that are never forgotten leave no room in a context of {n_ctx} tokens")]
    KeepsTooMuch {
        /// Tokens to keep.
        keep: u32,
        /// Tokens that a sequence may have.
        n_ctx: usize,
    },
    /// A sampling parameter.
    #[error(transparent)]
    Sampling(ParamError),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(change: impl FnOnce(&mut Request)) -> String {
        let mut request = Request::new(vec![1, 2]);
        change(&mut request);
        request.validate(10).unwrap_err().to_string()
    }

    #[test]
    fn faults_are_named_by_field() {
        assert_eq!(error(|r| r.prompt.clear()), "`prompt`: there are no tokens");
        assert_eq!(
            error(|r| r.prompt.push(10)),
            "`prompt`: token 10 at index 2 is outside the vocabulary of 10 tokens"
        );
        assert_eq!(error(|r| r.stop = vec!["a".into(), String::new()]), "`stop`: stop string 1 is empty");
        assert_eq!(
            error(|r| r.logprobs = Some(11)),
            "`logprobs`: 11 alternatives are more than the vocabulary of 10 tokens"
        );
        assert_eq!(
            error(|r| r.prompt_logprobs = Some(PromptLogprobs { top: 12 })),
            "`prompt_logprobs`: 12 alternatives are more than the vocabulary of 10 tokens"
        );
        assert!(error(|r| r.sampling.top_p = f32::NAN).starts_with("`top_p`"));
    }

    #[test]
    fn the_vocabulary_itself_is_in_range() {
        let mut request = Request::new(vec![9]);
        request.logprobs = Some(10);
        request.prompt_logprobs = Some(PromptLogprobs { top: 10 });
        assert_eq!(request.validate(10), Ok(()));
    }
}
