//! Loading: memory is leased, weights are packed, the tokenizer is built on another thread.

use std::sync::Arc;

use minfer_engine::kv::session::SessionIdentity;
use minfer_engine::{ConfigError, Engine, EngineConfig, HostLease, HostMemory, Runner, RunnerOptions};
use minfer_graph::{Executor, KvFormat, KvGranule, KvLayout, KvMemory, KvSpec};
use minfer_models::{Model, ModelOptions};
use minfer_text::{ChatTemplate, TemplateError, Tokenizer};

use crate::identity::identity;
use crate::load_progress::{LoadProgress, Watched};
use crate::room::{Asked, longest_context, wanted_context};
use crate::{
    LoadError, Machine, MemoryBound, MemoryBudget, MemoryLease, MemoryUse, ModelFile, Stretch,
    TemplateChoice, WeightTraffic,
};

/// The context length: how many positions a sequence may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ContextLength {
    /// The model's default ([`Model::default_context`]), or less where memory does not suffice.
    #[default]
    Auto,
    /// This many, or less where the model has fewer or memory does not suffice.
    AtMost(u32),
    /// Exactly this many; an error where memory does not suffice.
    Fixed(u32),
}

/// Element types and layout of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvOptions {
    /// Element type of K rows.
    pub k_format: KvFormat,
    /// Element type of V rows.
    pub v_format: KvFormat,
    /// Order of the elements in a block.
    pub layout: KvLayout,
    /// Positions of a block: a power of two, at least 16.
    pub block_tokens: u32,
}

impl Default for KvOptions {
    fn default() -> Self {
        KvOptions {
            k_format: KvFormat::F16,
            v_format: KvFormat::F16,
            layout: KvLayout::LaneMajor,
            block_tokens: 64,
        }
    }
}

impl KvOptions {
    /// Formats in which the rows of a model take fewer bytes, the largest first. Formats that are
    /// too coarse for K are left out.
    pub fn smaller(&self, model: &Model) -> Vec<KvFormat> {
        let bytes = |k_format, v_format| {
            let spec = model.kv_spec(k_format, v_format, self.layout, self.block_tokens, 1).ok()?;
            spec.validate().ok().map(|()| spec.bytes_per_token())
        };
        let own = bytes(self.k_format, self.v_format).unwrap_or(u64::MAX);
        let mut formats: Vec<_> = KvFormat::ALL
            .into_iter()
            .filter(|format| format.better_for_keys().is_none())
            .filter_map(|format| Some((bytes(format, format).filter(|&bytes| bytes < own)?, format)))
            .collect();
        formats.sort_by_key(|&(bytes, _)| std::cmp::Reverse(bytes));
        formats.dedup_by_key(|&mut (bytes, _)| bytes);
        formats.into_iter().map(|(_, format)| format).collect()
    }
}

/// Settings for loading a model.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadOptions {
    /// Overrides of the file's metadata and of the scaling of positions; `n_ctx` of them is ignored.
    pub model: ModelOptions,
    /// Context length: positions of a sequence.
    pub n_ctx: ContextLength,
    /// The most tokens of one forward pass.
    pub n_batch: u32,
    /// The most sequences that run at once.
    pub n_slots: u32,
    /// The most rows of logits that are computed at once.
    pub head_rows: u32,
    /// Element types and layout of the KV cache.
    pub kv: KvOptions,
    /// Bytes that the KV cache may take. `None`: those of `n_slots` sequences of the whole context,
    /// as far as memory allows.
    pub kv_memory: Option<u64>,
    /// Whether requests may use a context shift. The cache is then planned a little larger.
    pub context_shift: bool,
    /// Allocation unit of the KV cache.
    pub kv_granule: KvGranule,
    /// Bytes of empty KV memory that are kept for the next blocks.
    pub kv_keep_warm: u64,
    /// Pre-tokenizer in place of the file's, by name.
    pub tokenizer_pre: Option<String>,
    /// A chat template in place of the file's.
    pub chat_template: Option<TemplateChoice>,
    /// Names of graph rewrites that are switched off ([`minfer_graph::passes::names`]).
    pub rewrites_off: Vec<String>,
    /// Whether an engine keeps the rows of ended requests for later ones that begin alike.
    pub prefix_cache: bool,
    /// Whether an engine guesses tokens from the text so far and checks several in one step.
    pub speculation: bool,
}

impl LoadOptions {
    /// How the file is read as a model: `model`, with the context that is asked for.
    pub fn model_options(&self) -> ModelOptions {
        let n_ctx = match self.n_ctx {
            ContextLength::Fixed(positions) | ContextLength::AtMost(positions) => Some(positions),
            ContextLength::Auto => None,
        };
        ModelOptions { n_ctx, ..self.model.clone() }
    }
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions {
            model: ModelOptions::default(),
            n_ctx: ContextLength::Auto,
            n_batch: 512,
            n_slots: 1,
            head_rows: 16,
            kv: KvOptions::default(),
            kv_memory: None,
            context_shift: false,
            kv_granule: KvMemory::default().granule,
            kv_keep_warm: KvMemory::default().keep_warm,
            tokenizer_pre: None,
            chat_template: None,
            rewrites_off: Vec::new(),
            prefix_cache: true,
            speculation: true,
        }
    }
}

/// What limits the context length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextBound {
    /// `LoadOptions::kv_memory`.
    KvMemory,
    /// The machine's memory, or the limit set for it.
    Memory(MemoryBound),
}

/// A model in memory, ready to run.
pub struct Loaded {
    /// Hyperparameters and graphs.
    pub model: Model,
    /// The tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// The chat template, if there is one that can be used.
    pub template: Option<ChatTemplate>,
    /// Why the file's chat template cannot be used. Requests without a chat still work.
    pub template_fault: Option<TemplateError>,
    /// The context length.
    pub n_ctx: u32,
    /// The context length with unlimited memory; at least `n_ctx`.
    pub wanted_n_ctx: u32,
    /// What limits `n_ctx` where it is less than `wanted_n_ctx`.
    pub context_bound: Option<ContextBound>,
    /// The longest context that the model allows with these settings; at least `wanted_n_ctx`.
    pub longest_n_ctx: u32,
    /// Which setting allows a longer one.
    pub stretch: Stretch,
    /// Geometry of the KV cache.
    pub kv: KvSpec,
    /// Bytes of the file's tensors that the model uses.
    pub file_weight_bytes: u64,
    /// Fingerprints of model and template, which session files are checked against.
    pub identity: SessionIdentity,
    traffic: WeightTraffic,
    executor: Executor,
    prefix_cache: bool,
    speculation: bool,
    budget: Arc<MemoryBudget>,
}

impl Loaded {
    /// Reads the model, packs its weights, and builds the tokenizer on another thread meanwhile.
    ///
    /// # Errors
    /// This build does not run the model, a setting does not fit it, or memory does not suffice.
    pub fn new(machine: &Machine, file: &ModelFile, options: &LoadOptions) -> Result<Loaded, LoadError> {
        Loaded::with_progress(machine, file, options, |_| ())
    }

    /// As [`new`](Self::new). Calls `report`, from any thread, whenever a weight has been packed.
    ///
    /// # Errors
    /// As there.
    pub fn with_progress(
        machine: &Machine,
        file: &ModelFile,
        options: &LoadOptions,
        report: impl Fn(LoadProgress) + Sync,
    ) -> Result<Loaded, LoadError> {
        check_counts(options)?;
        // Free memory never chooses the rotation: a model's answer is that of the context that was asked for, or of its own.
        let model = file.model(&options.model_options())?;
        check_shift(&model, options)?;
        let kept = machine.backend().weight_bytes(&model.graph);
        let wanted_n_ctx = wanted_context(&model, options)?;
        let asked = Asked { machine, model: &model, kept: &kept, wanted: wanted_n_ctx, options };
        let needs = asked.needs()?;
        let mut leases = asked.lease(&needs)?;
        let n_ctx = needs.n_ctx;
        let context_bound = (n_ctx < wanted_n_ctx).then_some(needs.bound);
        let kv = needs.prepared.kv_spec().clone();
        let pre = options.tokenizer_pre.as_deref();
        let (executor, tokenizer) = std::thread::scope(|scope| {
            let tokenize = || file.tokenizer_with(pre, &options.model.metadata);
            let tokenizer = std::thread::Builder::new().spawn_scoped(scope, tokenize);
            let weights = model.weights(file.gguf());
            let executor = needs.prepared.load(&Watched::new(&weights, &kept, &report));
            // Where the system refuses a thread, the tokenizer is built after the weights.
            let Ok(tokenizer) = tokenizer else { return (executor, tokenize()) };
            (executor, tokenizer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let (mut executor, tokenizer) = (executor?, tokenizer?);
        settle(&mut leases, &tokenizer)?;
        executor.hold(leases);
        check_vocabulary(file, &model, &tokenizer)?;
        let (template, template_fault) = match file.chat_template(&tokenizer, options.chat_template.as_ref())
        {
            Ok(template) => (template, None),
            Err(LoadError::Template { cause, .. }) if options.chat_template.is_none() => (None, Some(cause)),
            Err(error) => return Err(error),
        };
        let identity = identity(file, &model, template.as_ref())?;
        file.gguf().check_unchanged()?;
        Ok(Loaded {
            file_weight_bytes: model.weights(file.gguf()).total_bytes(),
            identity,
            traffic: WeightTraffic::of(&model.graph, &kept),
            longest_n_ctx: longest_context(&model, &options.model),
            stretch: Stretch::of(&model, &options.model),
            model,
            tokenizer: Arc::new(tokenizer),
            template,
            template_fault,
            n_ctx,
            wanted_n_ctx,
            context_bound,
            kv,
            executor,
            prefix_cache: options.prefix_cache,
            speculation: options.speculation,
            budget: Arc::clone(machine.budget()),
        })
    }

    /// Weight bytes and multiply-accumulates of one token.
    pub fn weight_traffic(&self) -> WeightTraffic {
        self.traffic
    }

    /// The executor of the model's graphs.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Engine settings that fit the loaded model, to change some of them for
    /// [`into_engine_with`](Self::into_engine_with).
    pub fn engine_config(&self) -> EngineConfig {
        let extents = self.executor.extents();
        EngineConfig {
            n_ctx: self.n_ctx as usize,
            n_batch: extents.tokens as usize,
            n_slots: extents.sequences as usize,
            prefix_cache: self.prefix_cache,
            speculation: self.speculation,
            identity: self.identity,
            ..EngineConfig::default()
        }
    }

    /// Starts an engine, which serves requests on a thread of its own. Memory for KV rows that are
    /// swapped out is leased from the machine's memory budget.
    ///
    /// # Errors
    /// The settings contradict each other, or the system refused the thread.
    pub fn into_engine(self) -> Result<Engine, ConfigError> {
        let config = self.engine_config();
        self.into_engine_with(config)
    }

    /// [`into_engine`](Self::into_engine) with other settings.
    ///
    /// # Errors
    /// The settings contradict each other or the model, or the system refused the thread.
    pub fn into_engine_with(self, config: EngineConfig) -> Result<Engine, ConfigError> {
        Engine::with_host_memory(self.executor, self.tokenizer, config, host_memory(self.budget))
    }

    /// Makes a runner, which is fed tokens by hand and hands out logits.
    pub fn into_runner(self, options: RunnerOptions) -> Runner {
        Runner::new(self.executor, options)
    }
}

/// Host memory for KV rows that are swapped out, leased from the budget.
fn host_memory(budget: Arc<MemoryBudget>) -> HostMemory {
    HostMemory::new(move |bytes| {
        let lease = budget.lease(&[(MemoryUse::Swapped, bytes)]).ok()?.pop()?;
        Some(Box::new(SwappedRows(lease)) as Box<dyn HostLease>)
    })
}

struct SwappedRows(MemoryLease);

impl HostLease for SwappedRows {
    fn taken(&mut self) {
        self.0.taken(self.0.bytes()).expect("no more than was leased");
    }
}

fn check_counts(options: &LoadOptions) -> Result<(), LoadError> {
    let counts =
        [("n_batch", options.n_batch), ("n_slots", options.n_slots), ("head_rows", options.head_rows)];
    match counts.into_iter().find(|(_, count)| *count == 0) {
        Some((name, _)) => Err(LoadError::Zero(name)),
        None => Ok(()),
    }
}

fn check_shift(model: &Model, options: &LoadOptions) -> Result<(), LoadError> {
    let learned = model.graph.input_positions() != u32::MAX;
    if options.context_shift && learned { Err(LoadError::LearnedPositions) } else { Ok(()) }
}

fn check_vocabulary(file: &ModelFile, model: &Model, tokenizer: &Tokenizer) -> Result<(), LoadError> {
    let (tokens, rows) = (tokenizer.vocab_len(), model.hyperparams.vocab);
    // An embedding table may be padded beyond the vocabulary, but every token needs a row.
    if tokens > rows as usize {
        return Err(LoadError::VocabularySize { path: file.name(), tokens, rows });
    }
    Ok(())
}

/// Marks the leases of weights, workspace and tokenizer as taken, the tokenizer's with its real
/// size. The KV cache grows later, so its lease stays a promise.
fn settle(leases: &mut [MemoryLease], tokenizer: &Tokenizer) -> Result<(), LoadError> {
    for lease in leases {
        let bytes = match lease.what() {
            MemoryUse::Kv | MemoryUse::Swapped => continue,
            MemoryUse::Tokenizer => tokenizer.memory_bytes() as u64,
            MemoryUse::Weights | MemoryUse::Workspace => lease.bytes(),
        };
        lease.taken(bytes).map_err(|refused| LoadError::Memory { refused, suggestions: Vec::new() })?;
    }
    Ok(())
}

/// Memory estimate of a model with given settings. No weight is read for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Footprint {
    /// The context length.
    pub n_ctx: u32,
    /// The context length with unlimited memory.
    pub wanted_n_ctx: u32,
    /// Bytes of packed weights.
    pub weight_bytes: u64,
    /// Bytes of the tokenizer's tables (an upper bound).
    pub tokenizer_bytes: u64,
    /// Bytes of activations and logits.
    pub workspace_bytes: u64,
    /// Bytes of the KV cache when it is full.
    pub kv_bytes: u64,
    /// The sum.
    pub total_bytes: u64,
}

impl Footprint {
    /// Estimates what a model would take on a machine.
    ///
    /// # Errors
    /// Those of [`Loaded::new`] about settings and memory.
    pub fn of(machine: &Machine, model: &Model, options: &LoadOptions) -> Result<Footprint, LoadError> {
        check_counts(options)?;
        check_shift(model, options)?;
        let kept = machine.backend().weight_bytes(&model.graph);
        let wanted_n_ctx = wanted_context(model, options)?;
        let asked = Asked { machine, model, kept: &kept, wanted: wanted_n_ctx, options };
        let needs = asked.needs()?;
        asked.check(&needs)?;
        Ok(Footprint {
            n_ctx: needs.n_ctx,
            wanted_n_ctx,
            weight_bytes: needs.weights,
            tokenizer_bytes: needs.tokenizer,
            workspace_bytes: needs.workspace,
            kv_bytes: needs.kv,
            total_bytes: needs.total(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Rows that are in memory are not free any more, so they do not count as promised beside that.
    #[test]
    fn rows_that_left_the_cache_count_once_against_free_memory() {
        let free = Arc::new(AtomicU64::new(100));
        let query = Arc::clone(&free);
        let budget = MemoryBudget::with_query(None, move || Ok(query.load(Ordering::Relaxed)));
        let host = host_memory(Arc::clone(&budget));
        let mut lease = host.lend(60).expect("there is room");
        assert_eq!((budget.room(), host.lend(41).is_none()), (Ok(40), true), "promised");
        free.store(40, Ordering::Relaxed);
        lease.taken();
        assert_eq!((budget.room(), budget.held().total()), (Ok(40), 60), "taken");
        drop(lease);
        assert_eq!(budget.held().total(), 0);
    }
}
