//! The one error of the facade.

use std::error::Error as StdError;
use std::fmt;
use std::path::{Path, PathBuf};

use minfer_engine::kv::session::SessionError;
use minfer_engine::{ConfigError, EngineError, SubmitError};
use minfer_text::{EncodeError, TemplateError};

use super::{ErrorKind, wording};
use crate::{LoadError, Suggestion};

/// Why a model could not be loaded, or a request not be answered.
///
/// The message is one line for people: what, where, and what to do. [`kind`](Self::kind) is for
/// programs. [`get_ref`](Self::get_ref) is the cause itself, for a downcast to [`LoadError`],
/// [`EngineError`] and so on; [`source`](StdError::source) is the source of that cause, because
/// the message already includes the cause's own.
///
/// ```
/// use minfer::{ErrorKind, Model};
///
/// let error = Model::open("no-such-model.gguf").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::ModelNotFound);
/// ```
pub struct Error {
    kind: ErrorKind,
    cause: Box<Cause>,
}

/// What an error is made of.
#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error("{0}")]
    Load(LoadError),
    #[error("{0}")]
    Config(ConfigError),
    #[error("{0}")]
    Submit(SubmitError),
    #[error("{0}")]
    Engine(EngineError),
    #[error("{0}")]
    Template(TemplateError),
    #[error("{0}")]
    Encode(EncodeError),
    #[error("session file {}: {error}", path.display())]
    Session { path: PathBuf, error: SessionError },
    #[cfg(feature = "hub")]
    #[error("{0}")]
    Hub(minfer_hub::HubError),
    #[error("{}: {reason}", path.display())]
    Name { path: PathBuf, reason: String },
    #[error("the model has no chat template; `chat_template` gives one, and `complete` needs none")]
    NoTemplate,
    #[error("the file's chat template cannot be used: {0}; `chat_template` gives another")]
    UnusableTemplate(TemplateError),
    #[error("the chat template makes nothing of the messages")]
    EmptyPrompt,
    #[error("there is no answer to generate again")]
    NothingToRegenerate,
    #[error("the request was cancelled")]
    Cancelled,
}

impl Cause {
    /// The error of another crate that this is.
    fn inner(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        match self {
            Cause::Load(error) => Some(error),
            Cause::Config(error) => Some(error),
            Cause::Submit(error) => Some(error),
            Cause::Engine(error) => Some(error),
            Cause::Template(error) | Cause::UnusableTemplate(error) => Some(error),
            Cause::Encode(error) => Some(error),
            Cause::Session { error, .. } => Some(error),
            #[cfg(feature = "hub")]
            Cause::Hub(error) => Some(error),
            Cause::Name { .. }
            | Cause::NoTemplate
            | Cause::EmptyPrompt
            | Cause::NothingToRegenerate
            | Cause::Cancelled => None,
        }
    }
}

impl Error {
    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The error of the engine or the loader behind this one, if there is one.
    pub fn get_ref(&self) -> Option<&(dyn StdError + Send + Sync + 'static)> {
        self.cause.inner()
    }

    /// Settings with which the model fits into memory, each found by trying it.
    pub fn suggestions(&self) -> &[Suggestion] {
        match &*self.cause {
            Cause::Load(LoadError::Memory { suggestions, .. } | LoadError::KvMemory { suggestions, .. }) => {
                suggestions
            }
            _ => &[],
        }
    }

    fn new(kind: ErrorKind, cause: Cause) -> Error {
        Error { kind, cause: Box::new(cause) }
    }

    pub(super) fn cancelled() -> Error {
        Error::new(ErrorKind::Cancelled, Cause::Cancelled)
    }

    pub(super) fn stopped() -> Error {
        SubmitError::Stopped.into()
    }

    pub(super) fn no_template(fault: Option<TemplateError>) -> Error {
        let cause = fault.map_or(Cause::NoTemplate, Cause::UnusableTemplate);
        Error::new(ErrorKind::Template, cause)
    }

    pub(super) fn empty_prompt() -> Error {
        Error::new(ErrorKind::Template, Cause::EmptyPrompt)
    }

    pub(super) fn nothing_to_regenerate() -> Error {
        Error::new(ErrorKind::InvalidParameter, Cause::NothingToRegenerate)
    }

    pub(super) fn name(kind: ErrorKind, path: &Path, reason: impl Into<String>) -> Error {
        Error::new(kind, Cause::Name { path: path.to_owned(), reason: reason.into() })
    }

    pub(super) fn session(path: &Path, error: SessionError) -> Error {
        Error::new(ErrorKind::of_session(&error), Cause::Session { path: path.to_owned(), error })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = wording::with_methods(&self.cause.to_string());
        write!(formatter, "{message}{}", wording::clause(self.suggestions()))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Error").field("kind", &self.kind).field("cause", &self.cause).finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.cause.inner().and_then(StdError::source)
    }
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Error {
        Error::new(ErrorKind::of_load(&error), Cause::Load(error))
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Error {
        Error::new(ErrorKind::of_config(&error), Cause::Config(error))
    }
}

impl From<SubmitError> for Error {
    fn from(error: SubmitError) -> Error {
        Error::new(ErrorKind::of_submit(&error), Cause::Submit(error))
    }
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Error {
        Error::new(ErrorKind::of_engine(&error), Cause::Engine(error))
    }
}

impl From<TemplateError> for Error {
    fn from(error: TemplateError) -> Error {
        Error::new(ErrorKind::of_template(&error), Cause::Template(error))
    }
}

impl From<EncodeError> for Error {
    fn from(error: EncodeError) -> Error {
        Error::new(ErrorKind::InvalidParameter, Cause::Encode(error))
    }
}

#[cfg(feature = "hub")]
impl From<minfer_hub::HubError> for Error {
    fn from(error: minfer_hub::HubError) -> Error {
        Error::new(ErrorKind::of_hub(&error), Cause::Hub(error))
    }
}
