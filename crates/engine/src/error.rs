//! What can go wrong after a request was accepted, and why one is refused.

use crate::ModelExecutorError;
use crate::constraint::ConstraintError;
use crate::kv::StoreError;
use crate::request::RequestError;
use crate::sampler::SampleError;

/// Why a request could not be carried to its end.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// Running the model failed; every sequence of the step gets this error.
    #[error("running the model failed: {0}")]
    ModelExecutor(#[from] ModelExecutorError),
    /// A panic while the request was carried out: in its own event sink, sampler or text, or in a
    /// step that it was in.
    #[error("a panic ended the request: {0}")]
    Panicked(String),
    /// No memory for the sequence's cached rows.
    #[error(transparent)]
    Kv(#[from] StoreError),
    /// The cache's memory failed.
    #[error(transparent)]
    Backend(minfer_graph::BackendError),
    /// The new tokens of a conversation have no room in the context.
    #[error(
        "the conversation has {n_prompt_tokens} tokens, {n_new_tokens} of them new: \
         no room in a context of {n_ctx} tokens"
    )]
    ExceedsContext {
        /// Tokens of the conversation that are not forgotten.
        n_prompt_tokens: usize,
        /// Tokens that have to be fed.
        n_new_tokens: usize,
        /// Tokens that a sequence may have.
        n_ctx: usize,
    },
    /// The context is full, and a context shift could remove no token.
    #[error("the context of {n_ctx} tokens is full, and no token may be forgotten")]
    NothingToForget {
        /// Tokens that a sequence may have.
        n_ctx: usize,
    },
    /// The conversation that the request names is not one of the engine's, or was closed.
    #[error("there is no such conversation")]
    NoSession,
    /// The conversation that the request names was opened with another salt, or without one.
    #[error("the conversation was opened with another salt than the request's")]
    OtherSalt,
    /// No token could be chosen.
    #[error("{0} (generated token {index})", index = .1)]
    Sample(#[source] SampleError, u32),
    /// The request's constraint failed.
    #[error("the answer's form cannot be kept: {0}")]
    Constraint(#[source] ConstraintError),
    /// The request had not ended by its deadline.
    #[error("the request took longer than it may take")]
    Deadline,
    /// Steps went by that left work and advanced none.
    #[error("the engine made no progress in {steps} steps")]
    Stalled {
        /// Consecutive steps without progress.
        steps: u32,
    },
    /// The worker ended while the request was with it.
    #[error("the engine stopped")]
    Stopped,
}

/// Whose fault an error is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The request cannot be carried out as it stands.
    Request,
    /// There is no room now; the same request may succeed later.
    Unavailable,
    /// The model, the machine or the program failed.
    Failure,
}

impl EngineError {
    /// Whose fault it is.
    pub fn class(&self) -> ErrorClass {
        match self {
            EngineError::ExceedsContext { .. }
            | EngineError::NothingToForget { .. }
            | EngineError::NoSession
            | EngineError::OtherSalt
            | EngineError::Constraint(_)
            | EngineError::Sample(SampleError::AllMasked, _) => ErrorClass::Request,
            EngineError::Kv(_) | EngineError::Deadline => ErrorClass::Unavailable,
            EngineError::ModelExecutor(_)
            | EngineError::Panicked(_)
            | EngineError::Backend(_)
            | EngineError::Sample(..)
            | EngineError::Stalled { .. }
            | EngineError::Stopped => ErrorClass::Failure,
        }
    }
}

/// Why a request was not accepted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// A field cannot be used.
    #[error(transparent)]
    Invalid(#[from] RequestError),
    /// No room for the prompt and one token.
    #[error("the prompt of {n_prompt_tokens} tokens does not fit the context of {n_ctx} tokens")]
    ExceedsContext {
        /// Tokens of the prompt.
        n_prompt_tokens: usize,
        /// Tokens that a sequence may have.
        n_ctx: usize,
    },
    /// More rows than the KV cache can ever hold.
    #[error("the prompt of {n_prompt_tokens} tokens does not fit the KV cache of {kv_tokens} tokens")]
    ExceedsKv {
        /// Tokens of the prompt.
        n_prompt_tokens: usize,
        /// Tokens that one sequence has room for when it is alone.
        kv_tokens: usize,
    },
    /// As many requests wait as may wait.
    #[error("the queue is full: {n_slots} requests run and {queue} wait")]
    QueueFull {
        /// Requests that run.
        n_slots: usize,
        /// Requests that wait.
        queue: usize,
    },
    /// The engine is shutting down or has ended.
    #[error("the engine has stopped")]
    Stopped,
}

/// Engine settings that contradict each other or the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A setting below its least value.
    #[error("`{field}` is {value}, but must be at least {least}")]
    TooSmall {
        /// The setting.
        field: &'static str,
        /// What was given.
        value: usize,
        /// What is needed.
        least: usize,
    },
    /// A setting above what the model was compiled for.
    #[error("`{field}` is {value}, but the model was compiled for {most}")]
    TooLarge {
        /// The setting.
        field: &'static str,
        /// What was given.
        value: usize,
        /// What is possible.
        most: usize,
    },
    /// A step target that no step can meet.
    #[error("`step_target` is {0}, but must be 0 (off) or above 1")]
    StepTarget(String),
    /// The tokenizer names tokens that the model has no logits for.
    #[error("the tokenizer has {tokens} tokens, but the model predicts {vocab}")]
    Vocabulary {
        /// The tokenizer's tokens.
        tokens: usize,
        /// The model's.
        vocab: usize,
    },
    /// The worker thread could not be started.
    #[error("the worker thread could not be started: {0}")]
    Thread(String),
}
