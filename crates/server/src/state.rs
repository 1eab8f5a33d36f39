//! What all handlers share.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use llguidance::api::TopLevelGrammar;
use minfer::Model;

use crate::ServerConfig;
use crate::auth::Keys;
use crate::error::{ApiError, ErrorKind};
use crate::generate::grammar::{Grammar, Vocabulary};
use crate::metrics::Metrics;

/// Seconds after which a refused request may be tried again.
const RETRY_AFTER: u32 = 1;

/// The server's state.
pub(crate) struct App {
    pub(crate) config: ServerConfig,
    pub(crate) keys: Keys,
    pub(crate) metrics: Metrics,
    /// Set once the model is loaded.
    served: OnceLock<Served>,
    draining: AtomicBool,
    /// Answers that are generated or sent.
    pub(crate) answering: Arc<AtomicUsize>,
}

/// A loaded model under its name.
#[derive(Clone)]
pub struct Served {
    /// The name that clients see.
    pub name: String,
    /// The model.
    pub model: Model,
    /// Seconds since 1970 at which it was loaded.
    pub created: u64,
    /// Prepared when a grammar is first wanted.
    vocabulary: Arc<OnceLock<Result<Vocabulary, String>>>,
}

impl Served {
    /// `created`: seconds since 1970.
    pub fn new(name: impl Into<String>, model: Model, created: u64) -> Served {
        Served { name: name.into(), model, created, vocabulary: Arc::default() }
    }

    /// Compiles a grammar, which a request gave in `field`.
    pub(crate) fn compile(&self, grammar: TopLevelGrammar, field: &str) -> Result<Grammar, ApiError> {
        let vocabulary = self.vocabulary.get_or_init(|| Vocabulary::new(self.model.tokenizer()));
        let vocabulary = vocabulary.as_ref().map_err(|error| {
            ApiError::not_supported(field, format!("this model's answers cannot be given a form: {error}"))
        })?;
        vocabulary
            .compile(grammar)
            .map_err(|error| ApiError::invalid(field, format!("`{field}` cannot be used: {error}")))
    }
}

/// Whether requests are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    Ok,
    Loading,
    Draining,
    Stalled,
}

impl App {
    pub(crate) fn new(config: ServerConfig) -> App {
        let keys = Keys::new(&config.api_keys);
        App {
            config,
            keys,
            metrics: Metrics::default(),
            served: OnceLock::new(),
            draining: AtomicBool::new(false),
            answering: Arc::default(),
        }
    }

    /// Serves a model from here on.
    pub(crate) fn serve(&self, served: Served) {
        // There is one model, and it is loaded once.
        let _ = self.served.set(served);
    }

    /// Takes no more requests.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// The model, if it is loaded; also while requests are no longer taken.
    pub(crate) fn loaded(&self) -> Option<&Served> {
        self.served.get()
    }

    pub(crate) fn health(&self) -> Health {
        match self.served.get() {
            _ if self.draining.load(Ordering::Acquire) => Health::Draining,
            None => Health::Loading,
            Some(served) if served.model.engine().has_stopped() => Health::Stalled,
            Some(_) => Health::Ok,
        }
    }

    /// The model, for a request.
    ///
    /// # Errors
    /// It is loading or has stopped, or the server is about to end.
    pub(crate) fn served(&self) -> Result<&Served, ApiError> {
        let reason = match (self.health(), self.served.get()) {
            (Health::Ok, Some(served)) => return Ok(served),
            (Health::Draining, _) => "the server is about to end",
            (Health::Stalled, _) => "the model's engine has stopped; the server must be restarted",
            _ => "the model is loading",
        };
        let error = ApiError::new(ErrorKind::Unavailable, reason);
        Err(ApiError { retry_after: Some(RETRY_AFTER), ..error })
    }
}
