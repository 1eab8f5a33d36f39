//! What a client hears about its request.

use std::time::Duration;

use crate::EngineError;
pub use crate::sampler::logprobs::{TokenLogprob, TokenLogprobs};

/// News of one request. Exactly one of [`Finished`](Event::Finished), [`Failed`](Event::Failed) and
/// [`Cancelled`](Event::Cancelled) comes, and nothing after it.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// More of the prompt is in the cache.
    Progress(Progress),
    /// Predictions at the next positions of the prompt, in order.
    PromptLogprobs(Vec<PromptRow>),
    /// One generated token.
    Token(Token),
    /// The generation came to its end.
    Finished(Finished),
    /// The generation could not go on.
    Failed(EngineError),
    /// The generation was cancelled, or the engine shut down.
    Cancelled,
}

impl Event {
    /// Whether this is the last event of its request.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Event::Finished(_) | Event::Failed(_) | Event::Cancelled)
    }
}

/// How much of the prompt has been fed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Tokens in the cache.
    pub done: u32,
    /// Tokens of the prompt.
    pub total: u32,
}

/// What the model predicted after one token of the prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptRow {
    /// The token's index in the prompt.
    pub position: u32,
    /// The token itself.
    pub token: u32,
    /// Log-probability of the token that follows in the prompt; absent after the last.
    pub next_logprob: Option<f32>,
    /// The most probable next tokens, best first, ties by lower id.
    pub top: Vec<TokenLogprob>,
}

/// One generated token. The texts of all of a request's tokens, joined, are the answer, but for
/// [`Finished::tail`].
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    /// Index among the generated tokens.
    pub index: u32,
    /// The token's id.
    pub id: u32,
    /// Text that has become certain with this token; may be empty, or hold what earlier tokens left open.
    pub text: String,
    /// It ended the generation as an end-of-generation token; its own spelling is not part of the text.
    pub is_end: bool,
    /// Its log-probabilities, when asked for.
    pub logprobs: Option<TokenLogprobs>,
}

/// How a generation ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// Why.
    pub reason: FinishReason,
    /// Text to append that no token's event could carry: empty unless memory ran out while a character or the
    /// beginning of a stop string was held back.
    pub tail: String,
    /// Tokens counted.
    pub usage: Usage,
    /// Time taken.
    pub timings: Timings,
    /// The seed of the random draws, given or drawn.
    pub seed: u64,
}

impl Finished {
    /// Tokens of the prompt that were fed, per second; `None` where there were none.
    pub fn prompt_speed(&self) -> Option<f64> {
        speed(self.usage.prompt - self.usage.cached, self.timings.prompt)
    }

    /// Generated tokens per second, without the first one, which the end of the prompt has paid for; `None` where no other came.
    pub fn decode_speed(&self) -> Option<f64> {
        speed(self.usage.completion.saturating_sub(1), self.timings.predicted)
    }
}

fn speed(tokens: u32, time: Duration) -> Option<f64> {
    (tokens > 0 && !time.is_zero()).then(|| f64::from(tokens) / time.as_secs_f64())
}

/// Why a generation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FinishReason {
    /// The model or the client's stop string said so.
    Stop(StopCause),
    /// The wanted number of tokens, the context or the memory for it was used up.
    Length,
}

/// What stopped a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopCause {
    /// An end-of-generation token of the model.
    EndToken(u32),
    /// One of the request's stop strings.
    StopString(String),
}

/// Tokens counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Generated tokens, an end-of-generation token included: as many as there were [`Token`] events.
    pub completion: u32,
    /// Tokens of the prompt that did not have to be fed: their rows were found in the cache, or were removed by a context
    /// shift after they had been fed.
    pub cached: u32,
    /// Of those, tokens whose rows were found in the cache.
    pub reused: u32,
    /// Tokens whose rows context shifts have removed from the conversation so far.
    pub removed: u32,
}

/// Time taken by one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timings {
    /// From submission until the request first took part in a step.
    pub queued: Duration,
    /// From then until the prompt was fed and the first token chosen.
    pub prompt: Duration,
    /// From then until the end: the steps of all tokens but the first.
    pub predicted: Duration,
}

impl Timings {
    /// Milliseconds of [`prompt`](Self::prompt).
    pub fn prompt_ms(&self) -> f64 {
        self.prompt.as_secs_f64() * 1e3
    }

    /// Milliseconds of [`predicted`](Self::predicted).
    pub fn predicted_ms(&self) -> f64 {
        self.predicted.as_secs_f64() * 1e3
    }
}
