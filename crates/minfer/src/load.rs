use std::sync::Arc;

use minfer_engine::{ConfigError, Engine, EngineConfig, Runner, RunnerOptions};
use minfer_graph::{Executor, ExecutorConfig, Extents, KvFormat, KvLayout, KvMemory, KvSpec};
use minfer_models::{LayerSet, Model, ModelOptions};
use minfer_text::{ChatTemplate, Tokenizer};

use crate::room::Room;
use crate::{LoadError, Machine, ModelFile, TemplateChoice, WeightTraffic};

/// The most positions that any settings can ask for.
const MOST_POSITIONS: u32 = 1 << 30;

/// How many positions a sequence may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ContextLength {
    /// The model's own, or what memory allows where that is less.
    #[default]
    Auto,
    /// As [`Auto`](ContextLength::Auto), but not more than this many.
    AtMost(u32),
    /// This many.
    Fixed(u32),
}

/// Form of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvOptions {
    /// Storage of K rows.
    pub k_format: KvFormat,
    /// Storage of V rows.
    pub v_format: KvFormat,
    /// Order of elements inside a block.
    pub layout: KvLayout,
    /// Positions of a block: a power of two from 16 on.
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

/// Settings of one loaded model.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadOptions {
    /// What is changed about the file's description of itself.
    pub model: ModelOptions,
    /// Positions of a sequence.
    pub n_ctx: ContextLength,
    /// Tokens of one forward at most.
    pub n_batch: u32,
    /// Sequences that run at once at most.
    pub n_slots: u32,
    /// Rows of logits computed at once at most.
    pub head_rows: u32,
    /// Form of the KV cache.
    pub kv: KvOptions,
    /// Bytes that weights, KV cache and workspace may take together; absent: what the machine has free.
    pub memory_limit: Option<u64>,
    /// Name of a pre-tokenizer in place of the file's.
    pub tokenizer_pre: Option<String>,
    /// A chat template in place of the file's.
    pub chat_template: Option<TemplateChoice>,
    /// Names of graph rewrites that are switched off.
    pub rewrites_off: Vec<String>,
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
            memory_limit: None,
            tokenizer_pre: None,
            chat_template: None,
            rewrites_off: Vec::new(),
        }
    }
}

/// A model ready to run.
pub struct Loaded {
    /// The file as a model.
    pub model: Model,
    /// Text to tokens and back.
    pub tokenizer: Arc<Tokenizer>,
    /// The model's conversation format, if it has one.
    pub template: Option<ChatTemplate>,
    /// Positions that a sequence may have.
    pub n_ctx: u32,
    /// Positions that a sequence would have if memory did not bound them; at least `n_ctx`.
    pub wanted_n_ctx: u32,
    /// Form of the KV cache.
    pub kv: KvSpec,
    /// Bytes of the file's tensors that the model uses.
    pub file_weight_bytes: u64,
    traffic: WeightTraffic,
    executor: Executor,
}

impl Loaded {
    /// Reads the model, packs its weights and builds the tokenizer beside them.
    ///
    /// # Errors
    /// The file is no model that this build runs, a setting does not fit it, or memory does not suffice.
    pub fn new(machine: &Machine, file: &ModelFile, options: &LoadOptions) -> Result<Loaded, LoadError> {
        check_counts(options)?;
        let mut model = file.model(&options.model)?;
        let kept = machine.backend().weight_bytes(&model.program);
        let Context { n_ctx, wanted: wanted_n_ctx, kv } = context(&model, &kept, options)?;
        // Free memory never chooses the rotation: a model's answer is that of the context that was asked for, or of its own.
        if let ContextLength::Fixed(asked) = options.n_ctx {
            model.set_context(asked);
        }
        let (executor, tokenizer) = std::thread::scope(|scope| {
            let tokenizer = scope.spawn(|| file.tokenizer(options.tokenizer_pre.as_deref()));
            let executor = executor(machine, file, &model, kv.clone(), n_ctx, options);
            (executor, tokenizer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let (executor, tokenizer) = (executor?, tokenizer?);
        check_vocabulary(file, &model, &tokenizer)?;
        let template = file.chat_template(&tokenizer, options.chat_template.as_ref())?;
        Ok(Loaded {
            file_weight_bytes: model.weights(file.gguf()).total_bytes(),
            traffic: WeightTraffic::of(&model.program, &kept),
            model,
            tokenizer: Arc::new(tokenizer),
            template,
            n_ctx,
            wanted_n_ctx,
            kv,
            executor,
        })
    }

    /// What of the weights a token needs.
    pub fn weight_traffic(&self) -> WeightTraffic {
        self.traffic
    }

    /// What runs the model's graphs.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Serves requests from a thread of its own.
    ///
    /// # Errors
    /// Settings that contradict each other, or the thread was refused.
    pub fn into_engine(self) -> Result<Engine, ConfigError> {
        let extents = self.executor.extents();
        let config = EngineConfig {
            n_ctx: self.n_ctx as usize,
            n_batch: extents.tokens as usize,
            n_slots: extents.sequences as usize,
            ..EngineConfig::default()
        };
        Engine::new(self.executor, self.tokenizer, config)
    }

    /// Runs what it is fed by hand.
    pub fn into_runner(self, options: RunnerOptions) -> Runner {
        Runner::new(self.executor, options)
    }
}

fn check_counts(options: &LoadOptions) -> Result<(), LoadError> {
    let counts =
        [("--n-batch", options.n_batch), ("--n-slots", options.n_slots), ("head rows", options.head_rows)];
    match counts.into_iter().find(|(_, count)| *count == 0) {
        Some((name, _)) => Err(LoadError::Zero(name)),
        None => Ok(()),
    }
}

fn check_vocabulary(file: &ModelFile, model: &Model, tokenizer: &Tokenizer) -> Result<(), LoadError> {
    let (tokens, rows) = (tokenizer.vocab_len(), model.hyperparams.vocab);
    // A table may be padded beyond the vocabulary, but every token needs its row.
    if tokens > rows as usize {
        return Err(LoadError::VocabularySize { path: file.name(), tokens, rows });
    }
    Ok(())
}

fn executor(
    machine: &Machine,
    file: &ModelFile,
    model: &Model,
    kv: KvSpec,
    n_ctx: u32,
    options: &LoadOptions,
) -> Result<Executor, LoadError> {
    let config = ExecutorConfig {
        extents: Extents {
            tokens: options.n_batch.min(n_ctx.saturating_mul(options.n_slots)),
            rows: options.head_rows,
            sequences: options.n_slots,
        },
        rewrites_off: options.rewrites_off.clone(),
        kv_memory: KvMemory::default(),
    };
    let weights = model.weights(file.gguf());
    Ok(Executor::new(machine.backend(), model.program.clone(), &weights, kv, config)?)
}

/// What a model takes with given settings, told without reading a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    /// Positions that a sequence would have.
    pub n_ctx: u32,
    /// Positions that it would have if memory did not bound them.
    pub wanted_n_ctx: u32,
    /// Bytes of packed weights.
    pub weight_bytes: u64,
    /// Bytes of the KV cache at its full extent.
    pub kv_bytes: u64,
    /// Bytes of activations and logits, estimated.
    pub workspace_bytes: u64,
}

impl Footprint {
    /// The footprint of a model on a machine.
    ///
    /// # Errors
    /// Those of [`Loaded::new`] about settings and memory.
    pub fn of(machine: &Machine, model: &Model, options: &LoadOptions) -> Result<Footprint, LoadError> {
        check_counts(options)?;
        let kept = machine.backend().weight_bytes(&model.program);
        let Context { n_ctx, wanted, kv } = context(model, &kept, options)?;
        let room = Room::of(model, &kept, wanted, options);
        Ok(Footprint {
            n_ctx,
            wanted_n_ctx: wanted,
            weight_bytes: room.weights(),
            kv_bytes: u64::from(n_ctx) * kv.bytes_per_token() * u64::from(options.n_slots),
            workspace_bytes: room.workspace(),
        })
    }

    /// Bytes of all together.
    pub fn total_bytes(&self) -> u64 {
        self.weight_bytes + self.kv_bytes + self.workspace_bytes
    }
}

/// Resolves the context length against the model and memory, and the KV geometry with it. `kept` are the bytes that the backend keeps of
/// each weight.
fn context(model: &Model, kept: &[u64], options: &LoadOptions) -> Result<Context, LoadError> {
    let geometry = |n_ctx: u32| {
        let blocks = n_ctx.div_ceil(options.kv.block_tokens.max(1)) * options.n_slots;
        let KvOptions { k_format, v_format, layout, block_tokens } = options.kv;
        model.kv_spec(k_format, v_format, layout, block_tokens, blocks)
    };
    let per_token = geometry(1)?.bytes_per_token() * u64::from(options.n_slots);
    let longest = longest_context(model, &options.model);
    let wanted = match options.n_ctx {
        ContextLength::Fixed(0) | ContextLength::AtMost(0) => return Err(LoadError::Zero("--n-ctx")),
        ContextLength::Fixed(asked) if asked > longest => {
            let stretches = model.hyperparams.attention.rotated != LayerSet::None;
            return Err(LoadError::ContextTooLong { asked, most: longest, stretches });
        }
        ContextLength::Fixed(asked) => asked,
        ContextLength::AtMost(most) => most.min(longest),
        ContextLength::Auto => model.context_length(),
    };
    let room = Room::of(model, kept, wanted, options);
    let n_ctx = match options.n_ctx {
        ContextLength::Fixed(_) => room.check(wanted, per_token)?,
        _ => room.longest(wanted, per_token, options.kv.block_tokens)?,
    };
    Ok(Context { n_ctx, wanted, kv: geometry(n_ctx)? })
}

/// Positions of a sequence, those that it would have with more memory, and the KV geometry for them.
struct Context {
    n_ctx: u32,
    wanted: u32,
    kv: KvSpec,
}

/// Positions that can be asked for: the model's own, times the factor of a stretch that the settings ask for. A stretch
/// that the file itself asks for is in its own context length.
fn longest_context(model: &Model, options: &ModelOptions) -> u32 {
    let own = model.context_length();
    if options.rope.scale.is_none() && options.rope.freq_scale.is_none() {
        return own;
    }
    let stretched = f64::from(own) * model.hyperparams.rope.scaling.factor();
    own.max(stretched.min(f64::from(MOST_POSITIONS)) as u32)
}
