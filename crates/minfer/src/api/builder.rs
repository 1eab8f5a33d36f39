//! Settings of a model that is to be loaded.

use std::path::{Path, PathBuf};

use minfer_cpu::Isa;
use minfer_graph::KvFormat;

use super::source::Lookup;
use super::{Error, Model};
use crate::{
    ContextLength, LoadOptions, LoadProgress, Loaded, Machine, MachineOptions, ModelFile, TemplateChoice,
};

/// Settings for loading a model, made by [`Model::builder`].
///
/// ```no_run
/// use minfer::{KvFormat, Model};
///
/// # fn main() -> Result<(), minfer::Error> {
/// let model = Model::builder("model.gguf")
///     .context(4096)
///     .threads(2)
///     .cache_type(KvFormat::Q8_0)
///     .memory_limit(2 << 30)
///     .load()?;
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is loaded before `load`"]
pub struct ModelBuilder {
    source: Source,
    lookup: Lookup,
    machine: Option<Machine>,
    machine_options: MachineOptions,
    options: LoadOptions,
    progress: Box<dyn Fn(LoadProgress) + Send + Sync>,
}

/// What is loaded.
enum Source {
    Named(PathBuf),
    File(Box<ModelFile>),
}

/// Requests that run at once unless another number is set.
const PARALLEL: u32 = 4;

impl ModelBuilder {
    pub(super) fn new(model: PathBuf) -> ModelBuilder {
        ModelBuilder::of(Source::Named(model))
    }

    /// Settings for a file that was opened before, or made from bytes.
    pub fn from_file(file: ModelFile) -> ModelBuilder {
        ModelBuilder::of(Source::File(Box::new(file)))
    }

    fn of(source: Source) -> ModelBuilder {
        ModelBuilder {
            source,
            lookup: Lookup::default(),
            machine: None,
            machine_options: MachineOptions::default(),
            options: LoadOptions { n_slots: PARALLEL, ..LoadOptions::default() },
            progress: Box::new(|_| ()),
        }
    }

    /// Tokens that a prompt and its answer may have together. Without it: as many as the model was
    /// trained for, or as memory allows.
    pub fn context(mut self, tokens: u32) -> Self {
        self.options.n_ctx = ContextLength::Fixed(tokens);
        self
    }

    /// Requests that run at once (4); others wait. The KV cache is planned for the whole context of
    /// each, and its memory is taken as tokens come.
    pub fn parallel(mut self, requests: u32) -> Self {
        self.options.n_slots = requests;
        self
    }

    /// The most tokens of one forward pass (512). More feed a prompt faster, with more memory.
    pub fn batch(mut self, tokens: u32) -> Self {
        self.options.n_batch = tokens;
        self
    }

    /// Element type of the KV cache (f16).
    pub fn cache_type(self, format: KvFormat) -> Self {
        self.cache_types(format, format)
    }

    /// Element types of the K rows and the V rows of the KV cache.
    pub fn cache_types(mut self, k: KvFormat, v: KvFormat) -> Self {
        (self.options.kv.k_format, self.options.kv.v_format) = (k, v);
        self
    }

    /// Bytes that the KV cache may take. Without it: those of [`parallel`](Self::parallel)
    /// requests of the whole context, as far as memory allows.
    pub fn kv_memory(mut self, bytes: u64) -> Self {
        self.options.kv_memory = Some(bytes);
        self
    }

    /// Compute threads (one for each physical core). Ignored with [`machine`](Self::machine).
    pub fn threads(mut self, threads: usize) -> Self {
        self.machine_options.threads = Some(threads);
        self
    }

    /// Instruction set (the widest that the processor has). Ignored with
    /// [`machine`](Self::machine). The answer is the same with each.
    pub fn isa(mut self, isa: Isa) -> Self {
        self.machine_options.isa = Some(isa);
        self
    }

    /// Bytes that weights, KV cache and everything else may take together; without it, what is
    /// free. Ignored with [`machine`](Self::machine).
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.machine_options.memory_limit = Some(bytes);
        self
    }

    /// Runs the model on a machine that other models use too: they share threads and the memory
    /// limit.
    pub fn machine(mut self, machine: &Machine) -> Self {
        self.machine = Some(machine.clone());
        self
    }

    /// A chat template, as Jinja text, in place of the file's own.
    pub fn chat_template(mut self, source: impl Into<String>) -> Self {
        self.options.chat_template = Some(TemplateChoice::Source(source.into()));
        self
    }

    /// A chat template by name, such as `chatml` or `llama3`, or one of the file's named ones.
    pub fn chat_template_name(mut self, name: impl Into<String>) -> Self {
        self.options.chat_template = Some(TemplateChoice::Name(name.into()));
        self
    }

    /// Changes settings that have no method here, such as the scaling of positions.
    pub fn with_options(mut self, change: impl FnOnce(&mut LoadOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Calls `report`, from any thread, whenever a weight has been loaded.
    pub fn on_progress(mut self, report: impl Fn(LoadProgress) + Send + Sync + 'static) -> Self {
        self.progress = Box::new(report);
        self
    }

    /// The folder in which names of models are looked up, in place of `$MINFER_MODELS`,
    /// `$XDG_CACHE_HOME/minfer/models` or `~/.cache/minfer/models`.
    #[cfg(feature = "hub")]
    pub fn models_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.lookup.folder = Some(folder.into());
        self
    }

    /// Whether a model of the catalogue that is not in the models' folder is downloaded (default:
    /// false).
    #[cfg(feature = "hub")]
    pub fn pull(mut self, pull: bool) -> Self {
        self.lookup.pull = pull;
        self
    }

    /// Loads the model.
    ///
    /// # Errors
    /// The file is missing or not a model that this build runs, a setting does not fit it, or
    /// memory does not suffice. Nothing is loaded then.
    pub fn load(self) -> Result<Model, Error> {
        let file = match self.source {
            Source::Named(name) => ModelFile::open(&self.lookup.find(&name)?)?,
            Source::File(file) => *file,
        };
        let machine = match self.machine {
            Some(machine) => machine,
            None => Machine::new(&self.machine_options)?,
        };
        let loaded = Loaded::with_progress(&machine, &file, &self.options, &*self.progress)?;
        Model::start(loaded, machine, file.path().to_owned())
    }
}

impl std::fmt::Debug for ModelBuilder {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let source: &Path = match &self.source {
            Source::Named(name) => name,
            Source::File(file) => file.path(),
        };
        formatter
            .debug_struct("ModelBuilder")
            .field("source", &source)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
