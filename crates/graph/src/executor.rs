//! Runs a model graph on a backend.
//!
//! [`Executor::new`] verifies, rewrites, places, plans and compiles once, at load. A step then only
//! submits a batch.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use crate::backend::{
    Backend, BackendError, Buffer, Compiled, KvArena, LoadedWeights, Support, WeightSource,
};
use crate::check::{BatchCheck, BatchError};
use crate::passes::{self, RewriteError, RewriteReport};
use crate::place::{self, PlaceError, Placement};
use crate::plan::Plan;
use crate::{Batch, Extents, Graph, KvMemory, KvSpec, KvSpecError, ModelGraph, VerifyError};

/// What is chosen at load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorConfig {
    /// The largest step: memory is planned for it.
    pub extents: Extents,
    /// Names of rewrites that stay off ([`passes::names`]).
    pub rewrites_off: Vec<String>,
    /// How the KV arena takes its memory.
    pub kv_memory: KvMemory,
}

/// Errors of loading a model graph and of running a step.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// The model graph is not valid.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// A rewrite is unknown or broken.
    #[error(transparent)]
    Rewrite(#[from] RewriteError),
    /// An operation that no backend supports.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The KV spec is not valid.
    #[error(transparent)]
    KvSpec(#[from] KvSpecError),
    /// The KV cache does not fit the model graph.
    #[error("the KV cache does not fit the model: {0}")]
    KvMismatch(String),
    /// An extent of zero.
    #[error("planned extents must be at least 1: {0:?}")]
    Extents(Extents),
    /// A weight whose size does not match its type and shape.
    #[error("weight {name} ({desc}) has {found} bytes, expected {expected}")]
    WeightBytes {
        /// The weight's name.
        name: String,
        /// Its type and shape.
        desc: String,
        /// By type and shape.
        expected: u64,
        /// In the source.
        found: u64,
    },
    /// The batch is not valid, or larger than planned. Nothing has run.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The head was run without a successful body run on the same rows.
    #[error("the head needs the body's output for {asked} rows, there are {present}")]
    NoHidden {
        /// Rows of the batch.
        asked: usize,
        /// Rows of the last body run; 0 when it failed.
        present: usize,
    },
    /// Logits of a row that the last head run did not compute.
    #[error("logits of row {row} were asked for, the last run of the head computed {present}")]
    NoLogits {
        /// The row asked for.
        row: usize,
        /// Rows computed; 0 when it failed.
        present: usize,
    },
    /// The backend failed.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

/// Counters and sizes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecutorStats {
    /// Graphs built for the model ([`ModelGraph::builds`]): a body and a head.
    pub graph_builds: u64,
    /// Graphs that the backend compiled: a body and a head.
    pub compiles: u64,
    /// Successful runs of the body.
    pub body_runs: u64,
    /// Successful runs of the head.
    pub head_runs: u64,
    /// Tokens that went through the body.
    pub tokens: u64,
    /// Rows that went through the head.
    pub rows: u64,
    /// What the rewrites did.
    pub rewrites: RewriteReport,
    /// Bytes of workspace that the backend holds for both graphs.
    pub workspace_bytes: u64,
    /// Bytes of workspace without reuse: every value with memory of its own.
    pub naive_workspace_bytes: u64,
    /// Bytes of the weights as the backend keeps them.
    pub weight_bytes: u64,
}

/// A model graph on a backend, ready to run steps.
///
/// A step is one [`run_body`](Executor::run_body), then any number of
/// [`run_head`](Executor::run_head) over parts of the rows.
pub struct Executor {
    model_graph: ModelGraph,
    body: Box<dyn Compiled>,
    head: Box<dyn Compiled>,
    arena: Box<dyn KvArena>,
    hidden: Box<dyn Buffer>,
    logits: Box<dyn Buffer>,
    /// Weights that the compiled graphs read.
    weights: Box<dyn LoadedWeights>,
    backend: Arc<dyn Backend>,
    check: BatchCheck,
    extents: Extents,
    vocabulary: u32,
    placements: [Placement; 2],
    plans: [Plan; 2],
    stats: ExecutorStats,
    hidden_rows: usize,
    logits_rows: usize,
    /// Dropped last, after the memory that it accounts for.
    held: Vec<Box<dyn Any + Send + Sync>>,
}

/// A verified, rewritten, placed and planned model graph, before any memory is taken.
pub struct Prepared {
    backend: Arc<dyn Backend>,
    model_graph: ModelGraph,
    kv: KvSpec,
    config: ExecutorConfig,
    rewrites: RewriteReport,
    placements: [Placement; 2],
    plans: [Plan; 2],
    workspace_bytes: u64,
}

impl Prepared {
    /// Verifies, rewrites, places and plans.
    ///
    /// # Errors
    /// See [`ExecutorError`].
    pub fn new(
        backend: Arc<dyn Backend>,
        mut model_graph: ModelGraph,
        kv: KvSpec,
        config: ExecutorConfig,
    ) -> Result<Prepared, ExecutorError> {
        let extents = config.extents;
        if extents.tokens == 0 || extents.rows == 0 || extents.sequences == 0 {
            return Err(ExecutorError::Extents(extents));
        }
        model_graph.verify()?;
        check_kv(&model_graph, &kv)?;
        let rewrites = rewrite(backend.as_ref(), &mut model_graph, &kv, &config.rewrites_off)?;
        let placements = place::place(&model_graph, &kv, &[backend.as_ref()])?;
        let plans = [Plan::make(&model_graph.body, extents), Plan::make(&model_graph.head, extents)];
        let bytes = |graph, plan| backend.workspace_bytes(&model_graph, graph, plan, &kv);
        let workspace_bytes = bytes(&model_graph.body, &plans[0])? + bytes(&model_graph.head, &plans[1])?;
        Ok(Prepared { backend, model_graph, kv, config, rewrites, placements, plans, workspace_bytes })
    }

    /// The same model graph over an arena of other extents: `kv` differs in its numbers of blocks
    /// only.
    pub fn with_cache(self, kv: KvSpec, kv_memory: KvMemory) -> Prepared {
        debug_assert!(kv.groups == self.kv.groups, "the geometry of the cache is that of the plans");
        Prepared { kv, config: ExecutorConfig { kv_memory, ..self.config }, ..self }
    }

    /// Bytes that [`load`](Self::load) takes beside weights and KV cache: both graphs' workspace
    /// and the values at their edges.
    pub fn workspace_bytes(&self) -> u64 {
        let [hidden, logits] = self.edge_bytes();
        self.workspace_bytes + hidden + logits
    }

    /// The geometry of the arena.
    pub fn kv_spec(&self) -> &KvSpec {
        &self.kv
    }

    /// The model graph as it will run, after rewriting.
    pub fn into_model_graph(self) -> ModelGraph {
        self.model_graph
    }

    /// Bytes of the hidden rows between body and head, and of the logits.
    fn edge_bytes(&self) -> [u64; 2] {
        [self.plans[0].external_bytes[0], self.plans[1].external_bytes[1]]
    }

    /// Takes memory: loads the weights, compiles the graphs, reserves the arena.
    ///
    /// # Errors
    /// See [`ExecutorError`]; no memory stays taken.
    pub fn load(self, source: &dyn WeightSource) -> Result<Executor, ExecutorError> {
        let [hidden_bytes, logits_bytes] = self.edge_bytes();
        let Prepared { backend, model_graph, kv, config, rewrites, placements, plans, .. } = self;
        check_weight_bytes(&model_graph, source)?;
        let weights = backend.load(&model_graph, source)?;
        let mut compiles = 0;
        let mut compile = |graph, plan| {
            compiles += 1;
            backend.compile(&model_graph, graph, plan, weights.as_ref(), &kv)
        };
        let body = compile(&model_graph.body, &plans[0])?;
        let head = compile(&model_graph.head, &plans[1])?;
        let hidden = backend.buffer(hidden_bytes)?;
        let logits = backend.buffer(logits_bytes)?;
        let arena = backend.kv_arena(&kv, config.kv_memory)?;
        let vocabulary = model_graph.head.value(model_graph.head.outputs[0]).width();
        let stats = ExecutorStats {
            graph_builds: model_graph.builds,
            compiles,
            rewrites,
            workspace_bytes: body.workspace_bytes() + head.workspace_bytes(),
            naive_workspace_bytes: plans.iter().map(|plan| plan.naive_bytes).sum(),
            weight_bytes: weights.resident_bytes(),
            ..ExecutorStats::default()
        };
        Ok(Executor {
            check: BatchCheck::new(config.extents, &model_graph, kv),
            model_graph,
            body,
            head,
            arena,
            hidden,
            logits,
            weights,
            backend,
            extents: config.extents,
            vocabulary,
            placements,
            plans,
            stats,
            hidden_rows: 0,
            logits_rows: 0,
            held: Vec::new(),
        })
    }
}

impl Executor {
    /// Verifies, rewrites, places, plans, loads and compiles.
    ///
    /// # Errors
    /// See [`ExecutorError`]; no memory stays taken.
    pub fn new(
        backend: Arc<dyn Backend>,
        model_graph: ModelGraph,
        source: &dyn WeightSource,
        kv: KvSpec,
        config: ExecutorConfig,
    ) -> Result<Executor, ExecutorError> {
        Prepared::new(backend, model_graph, kv, config)?.load(source)
    }

    /// Drops `value` after the executor's memory, for example a memory lease.
    pub fn hold(&mut self, value: impl Any + Send + Sync) {
        self.held.push(Box::new(value));
    }

    /// Runs the body on the batch: stores K and V, keeps the hidden rows for the head.
    ///
    /// # Errors
    /// The batch is refused and nothing has run, or the backend failed; then the cells of this
    /// batch are undefined.
    pub fn run_body(&mut self, batch: &Batch<'_>) -> Result<(), ExecutorError> {
        self.check.body(batch)?;
        // Cleared first, so that neither an error nor a panic leaves rows that look valid.
        self.hidden_rows = 0;
        self.logits_rows = 0;
        self.body.submit(batch, self.arena.as_mut(), &mut [self.hidden.as_mut()])?;
        self.body.wait()?;
        self.hidden_rows = batch.token_ids.len();
        self.stats.body_runs += 1;
        self.stats.tokens += batch.token_ids.len() as u64;
        Ok(())
    }

    /// Computes logits for the batch's output rows, at most [`Extents::rows`] of them. The batch is
    /// the body's; only its output rows may differ.
    ///
    /// # Errors
    /// No output rows or too many, no body has run on these rows, or the backend failed.
    pub fn run_head(&mut self, batch: &Batch<'_>) -> Result<(), ExecutorError> {
        let asked = batch.token_ids.len();
        if asked != self.hidden_rows || asked == 0 {
            return Err(ExecutorError::NoHidden { asked, present: self.hidden_rows });
        }
        self.check.head(batch)?;
        self.logits_rows = 0;
        let externals: &mut [&mut dyn Buffer] = &mut [self.hidden.as_mut(), self.logits.as_mut()];
        self.head.submit(batch, self.arena.as_mut(), externals)?;
        self.head.wait()?;
        self.logits_rows = batch.output_rows.len();
        self.stats.head_runs += 1;
        self.stats.rows += batch.output_rows.len() as u64;
        Ok(())
    }

    /// Logits of the `row`-th output row of the last head run, one for each token of the
    /// vocabulary. Borrowed where the backend's memory is the host's own.
    ///
    /// # Errors
    /// The last head run did not compute that row, or the device failed.
    pub fn logits(&self, row: usize) -> Result<Cow<'_, [f32]>, ExecutorError> {
        if row >= self.logits_rows {
            return Err(ExecutorError::NoLogits { row, present: self.logits_rows });
        }
        let width = self.vocabulary as usize;
        let first = row * width;
        if let Some(all) = self.logits.host_f32() {
            return Ok(Cow::Borrowed(&all[first..first + width]));
        }
        let mut copy = vec![0.0; width];
        self.logits.read_f32(first, &mut copy)?;
        Ok(Cow::Owned(copy))
    }

    /// The arena that the engine's store commits and releases blocks of.
    pub fn arena(&mut self) -> &mut dyn KvArena {
        self.arena.as_mut()
    }

    /// The geometry of the arena.
    pub fn kv_spec(&self) -> &KvSpec {
        self.arena.spec()
    }

    /// The model graph as it runs, after rewriting.
    pub fn model_graph(&self) -> &ModelGraph {
        &self.model_graph
    }

    /// The largest step that was planned for.
    pub fn extents(&self) -> Extents {
        self.extents
    }

    /// Logits of a row.
    pub fn vocabulary(&self) -> u32 {
        self.vocabulary
    }

    /// The backend that runs it.
    pub fn backend(&self) -> &dyn Backend {
        self.backend.as_ref()
    }

    /// Counters and sizes.
    pub fn stats(&self) -> &ExecutorStats {
        &self.stats
    }

    /// The weights as the backend keeps them.
    pub fn weights(&self) -> &dyn LoadedWeights {
        &*self.weights
    }

    /// Placements of the body and of the head.
    pub fn placements(&self) -> &[Placement; 2] {
        &self.placements
    }

    /// Memory plans of the body and of the head.
    pub fn plans(&self) -> &[Plan; 2] {
        &self.plans
    }
}

fn rewrite(
    backend: &dyn Backend,
    model_graph: &mut ModelGraph,
    kv: &KvSpec,
    off: &[String],
) -> Result<RewriteReport, ExecutorError> {
    let rewrites = passes::enabled(off)?;
    let weights = model_graph.weights.clone();
    let accept =
        |graph: &Graph, node: &_| -> Support { place::node_support(backend, graph, node, &weights, kv) };
    let report = passes::rewrite(model_graph, &rewrites, &accept)?;
    model_graph.verify()?;
    Ok(report)
}

/// Every layer that the body stores or reads has its place in the cache, with the same geometry.
fn check_kv(model_graph: &ModelGraph, kv: &KvSpec) -> Result<(), ExecutorError> {
    kv.validate()?;
    for layer in model_graph.kv_layers() {
        let mismatch = |text: String| Err(ExecutorError::KvMismatch(text));
        let Some((group, _)) = kv.locate(layer.layer) else {
            return mismatch(format!("layer {} has no group", layer.layer));
        };
        let spec = &kv.groups[group];
        let have = [spec.kv_heads, spec.k_dim, spec.v_dim];
        let want = [layer.kv_heads, layer.k_dim, layer.v_dim];
        if have != want {
            return mismatch(format!(
                "layer {} stores [kv_heads, k_dim, v_dim] {want:?}, group {group} has {have:?}",
                layer.layer
            ));
        }
    }
    Ok(())
}

fn check_weight_bytes(model_graph: &ModelGraph, source: &dyn WeightSource) -> Result<(), ExecutorError> {
    for id in model_graph.used_weights() {
        let weight = model_graph.weight(id);
        let expected = weight.bytes();
        let found = source.stored_bytes(id);
        if found != expected {
            let (name, desc) = (weight.name.clone(), weight.to_string());
            return Err(ExecutorError::WeightBytes { name, desc, expected, found });
        }
    }
    Ok(())
}
