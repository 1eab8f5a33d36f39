use std::sync::Arc;

use minfer_engine::{ConfigError, Engine, EngineConfig, Runner, RunnerOptions};
use minfer_graph::{Executor, ExecutorConfig, Extents, KvFormat, KvLayout, KvSpec};
use minfer_models::{Model, ModelOptions};
use minfer_text::{ChatTemplate, Tokenizer};

use crate::{LoadError, Machine, ModelFile, TemplateChoice, WeightTraffic, available_memory};

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
    };
    let weights = model.weights(file.gguf());
    Ok(Executor::new(machine.backend(), model.program.clone(), &weights, kv, config)?)
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
    let room = Room::of(model, kept, options);
    let longest = longest_context(model, &options.model);
    let wanted = match options.n_ctx {
        ContextLength::Fixed(0) | ContextLength::AtMost(0) => return Err(LoadError::Zero("--n-ctx")),
        ContextLength::Fixed(asked) if asked > longest => {
            return Err(LoadError::ContextTooLong { asked, most: longest });
        }
        ContextLength::Fixed(asked) => asked,
        ContextLength::AtMost(most) => most.min(longest),
        ContextLength::Auto => model.context_length(),
    };
    let n_ctx = match options.n_ctx {
        ContextLength::Fixed(_) => room.check(wanted, per_token, ", try a smaller --n-ctx")?,
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

/// Memory that is asked for beside the KV cache, and what there is.
struct Room {
    weights: u64,
    workspace: u64,
    available: u64,
}

impl Room {
    fn of(model: &Model, kept: &[u64], options: &LoadOptions) -> Room {
        let weights = kept.iter().sum();
        let numbers = &model.hyperparams;
        // Hidden rows, the widest pair of rows of a layer, their 8-bit images, and the logits.
        let row = 4 * u64::from(numbers.width) * 3 + 4 * u64::from(numbers.feed_forward) * 4;
        let logits = 4 * u64::from(numbers.vocab) * u64::from(options.head_rows);
        let workspace = row * u64::from(options.n_batch) + logits;
        // Where the operating system does not tell, it refuses by itself when memory is taken.
        let free = available_memory().unwrap_or(u64::MAX);
        Room { weights, workspace, available: options.memory_limit.unwrap_or(u64::MAX).min(free) }
    }

    fn check(&self, n_ctx: u32, per_token: u64, advice: &'static str) -> Result<u32, LoadError> {
        let kv = u64::from(n_ctx) * per_token;
        if self.weights + self.workspace + kv <= self.available {
            return Ok(n_ctx);
        }
        let Room { weights, workspace, available } = *self;
        Err(LoadError::Memory { weights, kv, workspace, available, advice })
    }

    /// The most positions that fit, at least one block.
    fn longest(&self, most: u32, per_token: u64, block_tokens: u32) -> Result<u32, LoadError> {
        let room = self.available.saturating_sub(self.weights + self.workspace);
        let fitting = (room / per_token.max(1)).min(u64::from(most)) as u32;
        if fitting == most {
            return Ok(most);
        }
        self.check((fitting / block_tokens * block_tokens).max(block_tokens.min(most)), per_token, "")
    }
}
