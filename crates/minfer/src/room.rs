//! What a model takes, and whether that fits into memory: told before any weight is read.

use minfer_engine::kv::{SHIFTED_BLOCKS, most_rope_offsets, window_blocks};
use minfer_graph::{
    AttentionSpec, ExecutorConfig, Extents, KvGroupSpec, KvMemory, KvSpec, ModelGraph, Op, Prepared, RopeSpec,
};
use minfer_models::{LayerSet, Model, ModelOptions};

use crate::suggestion;
use crate::{
    ContextBound, ContextLength, KvOptions, LoadError, LoadOptions, Machine, MemoryLease, MemoryUse,
};

/// The most positions that any settings can ask for.
const MOST_POSITIONS: u32 = 1 << 30;

/// What a tokenizer's tables take at most, for each token of the vocabulary and whatever that is, before they are built and
/// count themselves.
const TOKENIZER_BYTES_A_TOKEN: u64 = 64;
const TOKENIZER_BYTES: u64 = 48 << 10;

/// A model's graphs and cache in the form that memory allows, and the bytes of each part.
pub(crate) struct Needs {
    /// Positions of a sequence.
    pub(crate) n_ctx: u32,
    /// The graphs, ready to be loaded.
    pub(crate) prepared: Prepared,
    pub(crate) weights: u64,
    pub(crate) tokenizer: u64,
    pub(crate) workspace: u64,
    pub(crate) kv: u64,
    /// What bounds the positions where they are fewer than wanted.
    pub(crate) bound: ContextBound,
}

/// What is asked of a machine's memory.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) model: &'a Model,
    /// Bytes that the backend keeps of each weight.
    pub(crate) kept: &'a [u64],
    /// From [`wanted_context`].
    pub(crate) wanted: u32,
    pub(crate) options: &'a LoadOptions,
}

impl Asked<'_> {
    /// Resolves the context length against settings and memory.
    ///
    /// # Errors
    /// The settings do not fit the model, or the shortest context that they allow is longer than `kv_memory` holds.
    pub(crate) fn needs(&self) -> Result<Needs, LoadError> {
        self.find().map_err(|error| match error {
            LoadError::KvMemory { n_ctx, needed, allowed, .. } => LoadError::KvMemory {
                n_ctx,
                needed,
                allowed,
                suggestions: suggestion::for_kv_memory(self, needed),
            },
            error => error,
        })
    }

    /// As [`needs`](Self::needs), without suggestions.
    pub(crate) fn find(&self) -> Result<Needs, LoadError> {
        let Asked { machine, model, wanted, options, .. } = *self;
        let geometry = Geometry::of(machine, model, options)?;
        let weights = self.kept.iter().sum();
        let tokenizer = TOKENIZER_BYTES + u64::from(model.hyperparams.vocab) * TOKENIZER_BYTES_A_TOKEN;
        let prepared = geometry.prepare(machine, model, wanted, u64::MAX, options)?;
        let angles = |n_ctx| angle_bytes(&model.graph, n_ctx, options.n_slots);
        let workspace = prepared.workspace_bytes() + angles(wanted);
        let others = weights + tokenizer + workspace;
        let (room, bound) = machine
            .budget()
            .tightest()
            .map_err(|refused| LoadError::Memory { refused, suggestions: Vec::new() })?;
        let room = room.saturating_sub(others);
        let allowed = options.kv_memory.unwrap_or(u64::MAX);
        let n_ctx = match options.n_ctx {
            ContextLength::Fixed(_) => wanted,
            _ => geometry.longest(wanted, room.min(allowed))?,
        };
        let needed = geometry.bytes(n_ctx, 1)?;
        if needed > allowed {
            return Err(LoadError::KvMemory { n_ctx, needed, allowed, suggestions: Vec::new() });
        }
        // Several sequences share what there is; one of them always has room for its whole context.
        let kv = geometry.bytes(n_ctx, options.n_slots)?.min(allowed).min(room).max(needed);
        let step = |n_ctx| step_tokens(options.n_batch, options.n_slots, n_ctx);
        let prepared = if step(n_ctx) == step(wanted) {
            prepared.with_cache(geometry.spec(n_ctx, options.n_slots)?, geometry.limited(kv))
        } else {
            geometry.prepare(machine, model, n_ctx, kv, options)?
        };
        let workspace = prepared.workspace_bytes() + angles(n_ctx);
        let bound = if allowed <= room { ContextBound::KvMemory } else { ContextBound::Memory(bound) };
        Ok(Needs { n_ctx, prepared, weights, tokenizer, workspace, kv, bound })
    }

    /// Leases every part, in the order of [`MemoryUse::ALL`].
    ///
    /// # Errors
    /// One does not fit; nothing is leased then.
    pub(crate) fn lease(&self, needs: &Needs) -> Result<Vec<MemoryLease>, LoadError> {
        self.machine.budget().lease(&needs.parts()).map_err(|refused| LoadError::Memory {
            suggestions: suggestion::for_memory(self, needs, &refused),
            refused,
        })
    }

    /// Whether [`lease`](Self::lease) would succeed; nothing stays leased.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn check(&self, needs: &Needs) -> Result<(), LoadError> {
        self.lease(needs).map(drop)
    }
}

impl Needs {
    /// Bytes of all together.
    pub(crate) fn total(&self) -> u64 {
        self.weights + self.tokenizer + self.workspace + self.kv
    }

    fn parts(&self) -> [(MemoryUse, u64); 4] {
        [
            (MemoryUse::Weights, self.weights),
            (MemoryUse::Tokenizer, self.tokenizer),
            (MemoryUse::Workspace, self.workspace),
            (MemoryUse::Kv, self.kv),
        ]
    }
}

/// The model graph that [`Loaded`](crate::Loaded) runs with these settings: the backend decides which rewrites apply.
///
/// # Errors
/// The settings do not fit the model, or the backend does not run it. Memory is not looked at.
pub fn prepared_graph(
    machine: &Machine,
    model: &Model,
    options: &LoadOptions,
) -> Result<ModelGraph, LoadError> {
    let n_ctx = wanted_context(model, options)?;
    let geometry = Geometry::of(machine, model, options)?;
    Ok(geometry.prepare(machine, model, n_ctx, u64::MAX, options)?.into_model_graph())
}

/// Positions that settings ask for, or the model's own.
///
/// # Errors
/// None, or more than the model has.
pub(crate) fn wanted_context(model: &Model, options: &LoadOptions) -> Result<u32, LoadError> {
    let longest = longest_context(model, &options.model);
    match options.n_ctx {
        ContextLength::Fixed(0) | ContextLength::AtMost(0) => Err(LoadError::Zero("n_ctx")),
        ContextLength::Fixed(asked) if asked > longest => Err(LoadError::ContextTooLong {
            asked,
            most: longest,
            stretch: Stretch::of(model, &options.model),
        }),
        ContextLength::Fixed(asked) => Ok(asked),
        ContextLength::AtMost(most) => Ok(most.min(longest)),
        ContextLength::Auto => Ok(model.default_context()),
    }
}

/// Positions that can be asked for: the model's own, times the factor of a stretch that the settings ask for. A stretch
/// that the file itself asks for is in its own context length.
pub(crate) fn longest_context(model: &Model, options: &ModelOptions) -> u32 {
    let own = model.context_length();
    if options.rope.scale.is_none() && options.rope.freq_scale.is_none() {
        return own;
    }
    let stretched = f64::from(own) * model.hyperparams.rope.scaling.factor();
    own.max(stretched.min(f64::from(MOST_POSITIONS)) as u32)
}

/// What makes the longest context of a model longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stretch {
    /// Nothing: its positions are learned.
    Never,
    /// `rope.scaling` with `rope.scale`.
    Scaling,
    /// A larger `rope.scale` than the one given.
    Scale,
    /// A smaller `rope.freq_scale` than the one given.
    FreqScale,
}

impl Stretch {
    pub(crate) fn of(model: &Model, options: &ModelOptions) -> Stretch {
        let rotated = &model.hyperparams.attention.rotated;
        match (options.rope.scale, options.rope.freq_scale) {
            _ if *rotated == LayerSet::None => Stretch::Never,
            (Some(_), _) => Stretch::Scale,
            (_, Some(_)) => Stretch::FreqScale,
            _ => Stretch::Scaling,
        }
    }
}

/// The KV cache as a function of the context.
struct Geometry {
    /// Of one block.
    unit: KvSpec,
    block_tokens: u32,
    /// Blocks of a sequence beside those that its positions fill.
    spare_blocks: u32,
    /// Most tokens of one forward, and most sequences.
    n_batch: u32,
    n_slots: u32,
    granule: u64,
    memory: KvMemory,
}

impl Geometry {
    fn of(machine: &Machine, model: &Model, options: &LoadOptions) -> Result<Geometry, LoadError> {
        let KvOptions { k_format, v_format, layout, block_tokens } = options.kv;
        let unit = model.kv_spec(k_format, v_format, layout, block_tokens, 1)?;
        unit.validate()?;
        let memory = KvMemory { granule: options.kv_granule, limit: None, keep_warm: options.kv_keep_warm };
        let granule =
            machine.backend().kv_granule_bytes(memory.granule).map_err(minfer_graph::ExecutorError::from)?;
        let spare_blocks = if options.context_shift { SHIFTED_BLOCKS } else { 0 };
        let (n_batch, n_slots) = (options.n_batch, options.n_slots);
        Ok(Geometry { unit, block_tokens, spare_blocks, n_batch, n_slots, granule, memory })
    }

    /// Room for some sequences of this length. A group with a window has room for its window and one step of each.
    fn spec(&self, n_ctx: u32, sequences: u32) -> Result<KvSpec, LoadError> {
        let step_tokens = step_tokens(self.n_batch, self.n_slots, n_ctx);
        let blocks = |group: &KvGroupSpec| {
            let positions = n_ctx.div_ceil(self.block_tokens);
            let held = group.window.map(|window| window_blocks(window, step_tokens, self.block_tokens));
            let blocks = held.map_or(positions, |held| held.min(positions));
            (blocks + self.spare_blocks).saturating_mul(sequences)
        };
        let groups = self.unit.groups.clone();
        let spec = KvSpec { max_blocks: groups.iter().map(blocks).collect(), groups };
        spec.validate()?;
        Ok(spec)
    }

    /// Bytes of the cache of some sequences of this length, in whole granules.
    fn bytes(&self, n_ctx: u32, sequences: u32) -> Result<u64, LoadError> {
        Ok(self.spec(n_ctx, sequences)?.arena_bytes(self.granule))
    }

    /// The most positions up to `most` whose cache has at most `room` bytes: whole blocks, at least one.
    fn longest(&self, most: u32, room: u64) -> Result<u32, LoadError> {
        if self.bytes(most, 1)? <= room {
            return Ok(most);
        }
        // More positions never take fewer bytes. The least that is tried fits, but for the first block, which there always is.
        let (mut fits, mut too_many) = (1, most.div_ceil(self.block_tokens));
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            match self.bytes(middle * self.block_tokens, 1)? <= room {
                true => fits = middle,
                false => too_many = middle,
            }
        }
        Ok((fits * self.block_tokens).min(most))
    }

    /// How the arena takes memory, with a bound of bytes.
    fn limited(&self, limit: u64) -> KvMemory {
        KvMemory { limit: Some(limit), ..self.memory }
    }

    fn prepare(
        &self,
        machine: &Machine,
        model: &Model,
        n_ctx: u32,
        limit: u64,
        options: &LoadOptions,
    ) -> Result<Prepared, LoadError> {
        let config = ExecutorConfig {
            extents: Extents {
                tokens: step_tokens(self.n_batch, self.n_slots, n_ctx),
                rows: options.head_rows,
                sequences: options.n_slots,
            },
            rewrites_off: options.rewrites_off.clone(),
            kv_memory: self.limited(limit),
        };
        let kv = self.spec(n_ctx, options.n_slots)?;
        Ok(Prepared::new(machine.backend(), model.graph.clone(), kv, config)?)
    }
}

/// Bytes of the angles by which queries are turned on for rows that context shifts have moved. Tables grow by doubling.
fn angle_bytes(model_graph: &ModelGraph, n_ctx: u32, sequences: u32) -> u64 {
    let mut rotations: Vec<RopeSpec> = Vec::new();
    for node in &model_graph.body.nodes {
        if let Op::Attention(AttentionSpec { rope: Some(rope), .. }) = &node.op {
            let turn = RopeSpec { magnitude: 1.0.into(), ..rope.clone() };
            if !rotations.contains(&turn) {
                rotations.push(turn);
            }
        }
    }
    let dims: u64 = rotations.iter().map(|rotation| u64::from(rotation.rotated_dims())).sum();
    let offsets = u64::from(most_rope_offsets(n_ctx));
    2 * u64::from(sequences) * offsets * dims * size_of::<f32>() as u64
}

/// Tokens of one forward at most: no more than there are positions.
fn step_tokens(n_batch: u32, n_slots: u32, n_ctx: u32) -> u32 {
    n_batch.min(n_ctx.saturating_mul(n_slots))
}
