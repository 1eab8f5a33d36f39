//! The models of a server: loaded at the start or when a request first names them, unloaded when
//! another one needs their memory.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::error::{ApiError, ErrorKind};
use crate::metrics::Metrics;
use crate::slots_file::SlotsFile;
use crate::state::Served;

/// A model that can be served.
pub struct Source {
    /// The name that clients see.
    pub name: String,
    /// Loads it; called again after it was unloaded.
    pub load: Box<dyn Fn() -> Result<Served, LoadFault> + Send + Sync>,
}

/// Why a model cannot be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadFault {
    /// For people.
    pub message: String,
    /// Less would be in the way if other models were unloaded.
    pub wants_memory: bool,
}

/// All models of a server.
pub(crate) struct Registry {
    entries: Vec<Entry>,
    /// Where conversations are kept.
    slots_file: Option<PathBuf>,
    metrics: Arc<Metrics>,
    /// One model is loaded at a time: loads would take each other's memory.
    loading: Mutex<()>,
    /// Counts requests.
    clock: AtomicU64,
}

struct Entry {
    source: Source,
    served: RwLock<Option<Served>>,
    /// The last request that named it.
    used: AtomicU64,
}

impl Entry {
    fn served(&self) -> Option<Served> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn put(&self, served: Option<Served>) -> Option<Served> {
        std::mem::replace(&mut *self.served.write().unwrap_or_else(PoisonError::into_inner), served)
    }

    /// Whether it is loaded and no request runs or waits.
    fn is_idle(&self) -> bool {
        self.served().is_some_and(|served| {
            let stats = served.model.stats();
            stats.running + stats.waiting == 0
        })
    }
}

fn close(served: Option<Served>) {
    if let Some(file) = served.and_then(|served| served.slots_file) {
        file.close();
    }
}

impl Registry {
    pub(crate) fn new(sources: Vec<Source>, slots_file: Option<PathBuf>, metrics: Arc<Metrics>) -> Registry {
        let entry = |source| Entry { source, served: RwLock::new(None), used: AtomicU64::new(0) };
        let entries = sources.into_iter().map(entry).collect();
        Registry { entries, slots_file, metrics, loading: Mutex::default(), clock: AtomicU64::new(1) }
    }

    /// Names of all models, and those that are loaded, in the order of the command line.
    pub(crate) fn list(&self) -> Vec<(&str, Option<Served>)> {
        self.entries.iter().map(|entry| (entry.source.name.as_str(), entry.served())).collect()
    }

    /// Those that are loaded.
    pub(crate) fn loaded(&self) -> Vec<Served> {
        self.entries.iter().filter_map(Entry::served).collect()
    }

    /// The place of the model that a request means. One model alone answers to any name.
    ///
    /// # Errors
    /// There is no model of that name.
    pub(crate) fn find(&self, name: Option<&str>) -> Result<usize, ApiError> {
        let Some(name) = name.filter(|name| !name.is_empty() && self.entries.len() > 1) else { return Ok(0) };
        // Clients of Ollama add a tag.
        let place = |name: &str| self.entries.iter().position(|entry| entry.source.name == name);
        let found = place(name).or_else(|| place(name.strip_suffix(":latest")?));
        found.ok_or_else(|| {
            let names: Vec<&str> = self.entries.iter().map(|entry| entry.source.name.as_str()).collect();
            let message = format!("there is no model {name:?}; served are {}", names.join(", "));
            ApiError { param: Some("model".to_owned()), ..ApiError::new(ErrorKind::NotFound, message) }
        })
    }

    /// A model, if it is loaded and its engine runs.
    pub(crate) fn get(&self, place: usize) -> Option<Served> {
        let entry = &self.entries[place];
        entry.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        entry.served()
    }

    /// Loads a model, unless another request has loaded it meanwhile. Where it cannot be loaded,
    /// idle models are unloaded for it, the longest idle first. Takes long: not on the threads of
    /// the HTTP runtime.
    ///
    /// # Errors
    /// Why it cannot be loaded.
    pub(crate) fn load(self: &Arc<Self>, place: usize) -> Result<Served, String> {
        let _one = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = &self.entries[place];
        if let Some(served) = entry.served() {
            return Ok(served);
        }
        loop {
            match (entry.source.load)() {
                Ok(mut served) => {
                    let metrics = Arc::clone(&self.metrics);
                    served.model.engine().observe_steps(move |report| metrics.step(report));
                    let file = self.slots_file_of(&entry.source.name);
                    served.slots_file = file.map(|path| SlotsFile::open(path, &served.model)).transpose()?;
                    tracing::info!(model = served.name, "loaded");
                    entry.put(Some(served.clone()));
                    return Ok(served);
                }
                Err(LoadFault { message, wants_memory: false }) => return Err(message),
                Err(LoadFault { message, .. }) => {
                    let idle = self.entries.iter().filter(|other| other.is_idle());
                    let Some(idle) = idle.min_by_key(|other| other.used.load(Ordering::Relaxed)) else {
                        return Err(message);
                    };
                    tracing::info!(model = idle.source.name, "unloaded: {message}");
                    close(idle.put(None));
                }
            }
        }
    }

    /// Writes what is not written yet of the loaded models' conversations.
    pub(crate) fn close(&self) {
        self.entries.iter().for_each(|entry| close(entry.served()));
    }

    /// The file that keeps a model's conversations.
    fn slots_file_of(&self, name: &str) -> Option<PathBuf> {
        let mut path = self.slots_file.clone()?.into_os_string();
        if self.entries.len() > 1 {
            let plain = |character: char| {
                if character.is_alphanumeric() || "-_.".contains(character) { character } else { '_' }
            };
            path.push(format!(".{}", name.chars().map(plain).collect::<String>()));
        }
        Some(path.into())
    }
}
