//! Events of a request: progress, tokens, and the one ending.

use std::time::Duration;

use crate::EngineError;
pub use crate::sampler::logprobs::{TokenLogprob, TokenLogprobs};

/// What a client receives about its request. Exactly one of [`Finished`](Event::Finished),
/// [`Failed`](Event::Failed) and [`Cancelled`](Event::Cancelled) comes, and nothing after it.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// More of the prompt is in the cache.
    Progress(Progress),
    /// Predictions at the next positions of the prompt, in order.
    PromptLogprobs(Vec<PromptRow>),
    /// One generated token.
    Token(Token),
    /// The generation finished.
    Finished(Finished),
    /// The request failed.
    Failed(EngineError),
    /// The request was cancelled, or the engine shut down.
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
    /// The text that this token completes. Empty while a character or the beginning of a stop
    /// string is held back; then the held text comes with a later token.
    pub text: String,
    /// What it is. Only the spelling of [`TokenKind::Text`] is part of the text.
    pub kind: TokenKind,
    /// Its log-probabilities, when asked for.
    pub logprobs: Option<TokenLogprobs>,
}

/// What a generated token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Text.
    Text,
    /// A control token, as those with which some models mark tool calls.
    Control,
    /// An end-of-generation token: it ended the generation.
    End,
}

/// How a generation ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// Why.
    pub reason: FinishReason,
    /// Text to append after the last token's: what was held back when the KV cache ran out. Empty
    /// otherwise.
    pub tail: String,
    /// Numbers of tokens.
    pub usage: Usage,
    /// Time taken.
    pub timings: Timings,
    /// The seed of the random draws, given or drawn.
    pub seed: u64,
}

impl Finished {
    /// Prefill speed: tokens of the prompt that were fed, per second; `None` if there were none.
    pub fn prompt_speed(&self) -> Option<f64> {
        speed(self.usage.prompt - self.usage.cached, self.timings.prompt)
    }

    /// Decode speed: generated tokens per second, without the first, which the prefill gives;
    /// `None` if there was no other.
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
    /// The request's constraint: the text is complete, and nothing may follow.
    Complete,
}

/// Numbers of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Generated tokens, an end-of-generation token included: as many as there were [`Token`]
    /// events.
    pub completion: u32,
    /// Tokens of the prompt that were not fed: their KV rows were in the cache, or a context shift
    /// had removed them.
    pub cached: u32,
    /// Of those, tokens whose KV rows were in the cache.
    pub reused: u32,
    /// Tokens that context shifts have removed from the conversation.
    pub removed: u32,
}

/// Time taken by one request, and what has shortened it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timings {
    /// From submission until the request first took part in a step.
    pub queued: Duration,
    /// From then until the prompt was fed and the first token chosen.
    pub prompt: Duration,
    /// From then until the end: the steps of all tokens but the first.
    pub predicted: Duration,
    /// Tokens that were guessed and fed behind the last one; how many depends on what steps took.
    pub guessed: u32,
    /// Of those, tokens that were right: generated tokens that took no step of their own.
    pub right_guesses: u32,
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
