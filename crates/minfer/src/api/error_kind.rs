//! What kind of error each cause is.

use std::io;

use minfer_engine::kv::session::SessionError;
use minfer_engine::{ConfigError, EngineError, SampleError, SubmitError};
use minfer_formats::gguf::{Cause, GgufError};
use minfer_graph::{BackendError, ExecutorError};
use minfer_models::ModelError;
use minfer_text::{TemplateError, TokenizerError};

use crate::{BudgetError, LoadError};

/// What went wrong, for programs that decide by it. Kinds may be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no model file of this path or name.
    ModelNotFound,
    /// The model file cannot be read, is damaged, or contradicts itself.
    ModelUnreadable,
    /// The model file is sound, but this build does not run it.
    ModelUnsupported,
    /// The model file could not be downloaded.
    Download,
    /// The model does not fit into memory. Nothing was loaded.
    #[non_exhaustive]
    OutOfMemory {
        /// Bytes that the part named in the message needs.
        needed: u64,
        /// Bytes that are left for it.
        available: u64,
    },
    /// The KV cache could not get memory for the rows of a request.
    CacheFull,
    /// The prompt leaves no room for an answer in the context.
    #[non_exhaustive]
    PromptTooLong {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens that fit into the context or the KV cache.
        context_tokens: usize,
    },
    /// A value that was given cannot be used. The message names it.
    InvalidParameter,
    /// There is no chat template, or it refuses the messages.
    Template,
    /// A session file cannot be used. It is left as it is.
    Session,
    /// As many requests wait as the queue holds. Try again later.
    QueueFull,
    /// The request was cancelled.
    Cancelled,
    /// The engine has ended and takes no more requests. Load the model again.
    EngineStopped,
    /// The operating system refused a file or a thread.
    Io,
    /// The engine failed: a damaged model, or a bug.
    Internal,
}

impl ErrorKind {
    pub(super) fn of_load(error: &LoadError) -> ErrorKind {
        match error {
            LoadError::File(error) => ErrorKind::of_gguf(error),
            LoadError::Model { cause, .. } => ErrorKind::of_model(cause),
            LoadError::Tokenizer { cause, .. } => match cause {
                TokenizerError::UnknownModel(_) | TokenizerError::UnknownPre { .. } => {
                    ErrorKind::ModelUnsupported
                }
                _ => ErrorKind::ModelUnreadable,
            },
            LoadError::Template { cause, .. } => ErrorKind::of_template(cause),
            LoadError::VocabularySize { .. } => ErrorKind::ModelUnreadable,
            LoadError::Memory { refused, .. } => ErrorKind::of_budget(refused),
            LoadError::KvMemory { needed, allowed, .. } => {
                ErrorKind::OutOfMemory { needed: *needed, available: *allowed }
            }
            LoadError::Threads { .. } => ErrorKind::Io,
            LoadError::Executor(error) => ErrorKind::of_executor(error),
            _ => ErrorKind::InvalidParameter,
        }
    }

    fn of_gguf(error: &GgufError) -> ErrorKind {
        match error.cause() {
            Cause::Io(error) if is_missing(error) => ErrorKind::ModelNotFound,
            Cause::Version { .. } | Cause::BigEndian { .. } => ErrorKind::ModelUnsupported,
            _ => ErrorKind::ModelUnreadable,
        }
    }

    fn of_model(error: &ModelError) -> ErrorKind {
        match error {
            ModelError::File(error) => ErrorKind::of_gguf(error),
            ModelError::UnknownArchitecture { .. }
            | ModelError::Unsupported { .. }
            | ModelError::TensorType { .. } => ErrorKind::ModelUnsupported,
            ModelError::TokenizerOverride { .. }
            | ModelError::UselessOverride { .. }
            | ModelError::BadOverride { .. } => ErrorKind::InvalidParameter,
            _ => ErrorKind::ModelUnreadable,
        }
    }

    fn of_budget(error: &BudgetError) -> ErrorKind {
        match error {
            BudgetError::Exceeded { needed, held, most, .. } => {
                ErrorKind::OutOfMemory { needed: *needed, available: most.saturating_sub(*held) }
            }
            BudgetError::Unknown(_) => ErrorKind::Io,
        }
    }

    fn of_executor(error: &ExecutorError) -> ErrorKind {
        match error {
            ExecutorError::Backend(BackendError::OutOfMemory { bytes, .. }) => {
                ErrorKind::OutOfMemory { needed: *bytes, available: 0 }
            }
            ExecutorError::Backend(BackendError::NoAddresses { bytes, .. }) => {
                ErrorKind::OutOfMemory { needed: *bytes, available: 0 }
            }
            ExecutorError::Backend(BackendError::Weight(_)) => ErrorKind::ModelUnreadable,
            ExecutorError::Backend(BackendError::Unsupported { .. }) | ExecutorError::Place(_) => {
                ErrorKind::ModelUnsupported
            }
            ExecutorError::Rewrite(_) | ExecutorError::KvSpec(_) => ErrorKind::InvalidParameter,
            _ => ErrorKind::Internal,
        }
    }

    pub(super) fn of_template(error: &TemplateError) -> ErrorKind {
        match error {
            TemplateError::Encode(_) => ErrorKind::InvalidParameter,
            TemplateError::NoThread(_) => ErrorKind::Io,
            _ => ErrorKind::Template,
        }
    }

    pub(super) fn of_config(error: &ConfigError) -> ErrorKind {
        match error {
            ConfigError::Thread(_) => ErrorKind::Io,
            ConfigError::Vocabulary { .. } => ErrorKind::ModelUnreadable,
            _ => ErrorKind::InvalidParameter,
        }
    }

    pub(super) fn of_submit(error: &SubmitError) -> ErrorKind {
        match error {
            SubmitError::Invalid(_) => ErrorKind::InvalidParameter,
            SubmitError::ExceedsContext { n_prompt_tokens, n_ctx } => {
                ErrorKind::PromptTooLong { prompt_tokens: *n_prompt_tokens, context_tokens: *n_ctx }
            }
            SubmitError::ExceedsKv { n_prompt_tokens, kv_tokens } => {
                ErrorKind::PromptTooLong { prompt_tokens: *n_prompt_tokens, context_tokens: *kv_tokens }
            }
            SubmitError::QueueFull { .. } => ErrorKind::QueueFull,
            SubmitError::Stopped => ErrorKind::EngineStopped,
            _ => ErrorKind::Internal,
        }
    }

    pub(super) fn of_engine(error: &EngineError) -> ErrorKind {
        match error {
            EngineError::Kv(_) => ErrorKind::CacheFull,
            EngineError::ExceedsContext { n_prompt_tokens, n_ctx, .. } => {
                ErrorKind::PromptTooLong { prompt_tokens: *n_prompt_tokens, context_tokens: *n_ctx }
            }
            EngineError::Sample(SampleError::AllMasked, _) => ErrorKind::InvalidParameter,
            EngineError::Stopped | EngineError::Stalled { .. } => ErrorKind::EngineStopped,
            _ => ErrorKind::Internal,
        }
    }

    pub(super) fn of_session(error: &SessionError) -> ErrorKind {
        match error {
            SessionError::Io { .. } | SessionError::NoFolder(_) => ErrorKind::Io,
            SessionError::Stopped => ErrorKind::EngineStopped,
            SessionError::NotInCache(_) | SessionError::Store(_) => ErrorKind::CacheFull,
            _ => ErrorKind::Session,
        }
    }

    #[cfg(feature = "hub")]
    pub(super) fn of_hub(error: &minfer_hub::HubError) -> ErrorKind {
        use minfer_hub::HubError;
        match error {
            HubError::UnknownModel { .. } | HubError::NoSuchFile { .. } => ErrorKind::ModelNotFound,
            HubError::IsFolder { .. } | HubError::NotAFile { .. } | HubError::CacheDamaged { .. } => {
                ErrorKind::ModelUnreadable
            }
            HubError::SourceNotBuilt { .. } | HubError::BadRequirement { .. } => ErrorKind::InvalidParameter,
            HubError::Io { .. } | HubError::NoCacheFolder => ErrorKind::Io,
            _ => ErrorKind::Download,
        }
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
