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
use crate::registry::{Registry, Source};
use crate::slots_file::SlotsFile;

/// Seconds after which a refused request may be tried again.
const RETRY_AFTER: u32 = 1;

/// The server's state.
pub(crate) struct App {
    pub(crate) config: ServerConfig,
    pub(crate) keys: Keys,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) registry: Arc<Registry>,
    /// The first model is loaded.
    started: AtomicBool,
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
    /// Keeps the conversations of its slots.
    pub(crate) slots_file: Option<Arc<SlotsFile>>,
    /// Prepared when a grammar is first wanted.
    vocabulary: Arc<OnceLock<Result<Vocabulary, String>>>,
}

impl Served {
    /// `created`: seconds since 1970.
    pub fn new(name: impl Into<String>, model: Model, created: u64) -> Served {
        Served { name: name.into(), model, created, slots_file: None, vocabulary: Arc::default() }
    }

    /// A request has ended, or a slot was changed.
    pub(crate) fn slots_changed(&self) {
        self.slots_file.iter().for_each(|file| file.mark());
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
    pub(crate) fn new(config: ServerConfig, sources: Vec<Source>) -> App {
        let keys = Keys::new(&config.api_keys);
        let metrics = Arc::new(Metrics::default());
        let registry = Arc::new(Registry::new(sources, config.slots_file.clone(), Arc::clone(&metrics)));
        App {
            config,
            keys,
            metrics,
            registry,
            started: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            answering: Arc::default(),
        }
    }

    /// Takes requests from here on.
    pub(crate) fn start(&self) {
        self.started.store(true, Ordering::Release);
    }

    /// Takes no more requests.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    pub(crate) fn health(&self) -> Health {
        if self.draining.load(Ordering::Acquire) {
            return Health::Draining;
        }
        if !self.started.load(Ordering::Acquire) {
            return Health::Loading;
        }
        match self.registry.loaded().iter().any(|served| served.model.engine().has_stopped()) {
            true => Health::Stalled,
            false => Health::Ok,
        }
    }

    /// The model that a request means; it is loaded first if it is not.
    ///
    /// # Errors
    /// There is no such model, it cannot be loaded or has stopped, or the server is about to end.
    pub(crate) async fn served(&self, name: Option<&str>) -> Result<Served, ApiError> {
        let reason = match self.health() {
            Health::Ok | Health::Stalled => return self.loaded(name).await,
            Health::Draining => "the server is about to end",
            Health::Loading => "the model is loading",
        };
        Err(unavailable(reason))
    }

    async fn loaded(&self, name: Option<&str>) -> Result<Served, ApiError> {
        let place = self.registry.find(name)?;
        let served = match self.registry.get(place) {
            Some(served) => served,
            None => {
                let registry = Arc::clone(&self.registry);
                let load = tokio::task::spawn_blocking(move || registry.load(place));
                let loaded = load.await.map_err(|panic| panic.to_string()).and_then(|loaded| loaded);
                loaded.map_err(|error| unavailable(&error))?
            }
        };
        match served.model.engine().has_stopped() {
            true => Err(unavailable("the model's engine has stopped; the server must be restarted")),
            false => Ok(served),
        }
    }
}

fn unavailable(reason: &str) -> ApiError {
    ApiError { retry_after: Some(RETRY_AFTER), ..ApiError::new(ErrorKind::Unavailable, reason) }
}
