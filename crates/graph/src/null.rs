//! A backend for tests: it computes nothing, checks every batch and counts every call.
//!
//! Its KV arena remembers the token of each cell, so logits can depend on the whole history of a
//! sequence. A block that is shared, copied or released by mistake gives another text, or an error
//! that names the cell.

mod arena;

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use arena::NullArena;

use crate::backend::{
    Backend, BackendError, Buffer, Compiled, KvArena, LoadedWeights, Support, WeightSource,
};
use crate::plan::Plan;
use crate::{Batch, Graph, KvGranule, KvMemory, KvSpec, ModelGraph, Op, Symbol, TensorDesc, WeightDesc};

/// Fills one row of logits from the sequence's tokens up to and with the row's own.
type LogitsRule = dyn Fn(&[u32], &mut [f32]) + Send + Sync;

/// Counters of a [`NullBackend`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NullStats {
    /// Model graphs loaded.
    pub loads: u64,
    /// Graphs compiled.
    pub compiles: u64,
    /// Successful runs of graphs that take token ids.
    pub body_runs: u64,
    /// Successful runs of graphs that yield rows.
    pub head_runs: u64,
    /// Runs that were made to fail.
    pub failed_runs: u64,
    /// Rows through bodies.
    pub tokens: u64,
    /// Rows through heads.
    pub rows: u64,
    /// The most rows of one body run.
    pub largest_step: u64,
    /// Blocks committed, ever.
    pub commits: u64,
    /// Blocks released, ever.
    pub releases: u64,
    /// Blocks committed now.
    pub committed_blocks: u64,
    /// The most blocks committed at one time.
    pub peak_committed_blocks: u64,
    /// Memory asked for: weights, workspaces, buffers, arenas, blocks.
    pub allocations: u64,
}

/// Fires once, after a given number of events.
#[derive(Debug, Default)]
struct Fuse(Option<u64>);

impl Fuse {
    /// Whether it fires at this event.
    fn burn(&mut self) -> bool {
        match self.0 {
            Some(0) => {
                self.0 = None;
                true
            }
            Some(left) => {
                self.0 = Some(left - 1);
                false
            }
            None => false,
        }
    }
}

#[derive(Default)]
struct State {
    stats: NullStats,
    fail: Fuse,
    panic: Fuse,
    refuse: Fuse,
    read: Fuse,
    panic_allocation: Fuse,
    delay: Duration,
}

/// A backend that supports everything and computes nothing. Clones share counters and faults, so a
/// test keeps one clone and gives another to an executor.
#[derive(Clone)]
pub struct NullBackend {
    state: Arc<Mutex<State>>,
    logits: Option<Arc<LogitsRule>>,
    refused_op: Option<(&'static str, String)>,
}

impl Default for NullBackend {
    fn default() -> Self {
        NullBackend::new()
    }
}

impl fmt::Debug for NullBackend {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("NullBackend").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl NullBackend {
    /// All logits are zero.
    pub fn new() -> NullBackend {
        NullBackend { state: Arc::default(), logits: None, refused_op: None }
    }

    /// Logits are what `rule` writes, given the tokens of the row's sequence up to and with the
    /// row's own, read back through the block table of the first KV group (only the row's own token
    /// in a model graph without KV).
    pub fn with_logits(self, rule: impl Fn(&[u32], &mut [f32]) + Send + Sync + 'static) -> NullBackend {
        NullBackend { logits: Some(Arc::new(rule)), ..self }
    }

    /// Logits are small numbers in -1..1 with one token at 8, all from a hash of `seed` and the
    /// history.
    pub fn with_seeded_logits(self, seed: u64) -> NullBackend {
        self.with_logits(move |history, logits| seeded_logits(seed, history, logits))
    }

    /// Does not support one operation, by name.
    pub fn refusing(self, op: &'static str, reason: &str) -> NullBackend {
        NullBackend { refused_op: Some((op, reason.to_owned())), ..self }
    }

    /// The counters.
    pub fn stats(&self) -> NullStats {
        self.state().stats.clone()
    }

    /// The run after `more` further runs fails; bodies and heads count alike.
    pub fn fail_run(&self, more: u64) {
        self.state().fail = Fuse(Some(more));
    }

    /// The run after `more` further runs panics.
    pub fn panic_run(&self, more: u64) {
        self.state().panic = Fuse(Some(more));
    }

    /// The request for memory after `more` further ones is refused.
    pub fn refuse_allocation(&self, more: u64) {
        self.state().refuse = Fuse(Some(more));
    }

    /// The reading of KV rows after `more` further ones fails.
    pub fn fail_read(&self, more: u64) {
        self.state().read = Fuse(Some(more));
    }

    /// The request for memory after `more` further ones panics.
    pub fn panic_allocation(&self, more: u64) {
        self.state().panic_allocation = Fuse(Some(more));
    }

    /// Every later run takes at least this long.
    pub fn delay_runs(&self, delay: Duration) {
        self.state().delay = delay;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic that a test asked for leaves plain counters, which stay valid.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn allocate(&self, what: &str, bytes: u64) -> Result<(), BackendError> {
        let mut state = self.state();
        assert!(!state.panic_allocation.burn(), "the null backend was asked to panic for memory of {what}");
        if state.refuse.burn() {
            return Err(BackendError::OutOfMemory { what: what.to_owned(), bytes });
        }
        state.stats.allocations += 1;
        Ok(())
    }

    fn device_error(&self, reason: impl Into<String>) -> BackendError {
        BackendError::Device { backend: "null".to_owned(), reason: reason.into() }
    }

    /// Delays, panics or fails a run as asked.
    fn start_run(&self) -> Result<(), BackendError> {
        let mut state = self.state();
        let (delay, panics, fails) = (state.delay, state.panic.burn(), state.fail.burn());
        state.stats.failed_runs += u64::from(panics || fails);
        drop(state);
        std::thread::sleep(delay);
        assert!(!panics, "the null backend was asked to panic in this run");
        if fails { Err(self.device_error("this run was asked to fail")) } else { Ok(()) }
    }
}

impl Backend for NullBackend {
    fn name(&self) -> &str {
        "null"
    }

    fn supports(
        &self,
        op: &Op,
        _inputs: &[&TensorDesc],
        _outputs: &[&TensorDesc],
        _weights: &[&WeightDesc],
        _kv: &KvSpec,
    ) -> Support {
        match &self.refused_op {
            Some((name, reason)) if *name == op.name() => Support::Unsupported(reason.clone()),
            _ => Support::Supported,
        }
    }

    fn weight_bytes(&self, model_graph: &ModelGraph) -> Vec<u64> {
        let mut bytes = vec![0; model_graph.weights.len()];
        for id in model_graph.used_weights() {
            bytes[id.0 as usize] = model_graph.weight(id).bytes();
        }
        bytes
    }

    fn load(
        &self,
        model_graph: &ModelGraph,
        source: &dyn WeightSource,
    ) -> Result<Box<dyn LoadedWeights>, BackendError> {
        let bytes = self.weight_bytes(model_graph).into_iter().sum();
        self.allocate("weights", bytes)?;
        model_graph.used_weights().into_iter().for_each(|id| source.taken(id));
        self.state().stats.loads += 1;
        Ok(Box::new(NullWeights(bytes)))
    }

    fn kv_arena(&self, spec: &KvSpec, memory: KvMemory) -> Result<Box<dyn KvArena>, BackendError> {
        let blocks = spec.groups.iter().zip(&spec.max_blocks);
        let reserved = blocks.map(|(group, &blocks)| u64::from(blocks) * group.bytes_per_block()).sum();
        self.allocate("KV arena", reserved)?;
        let blocks = HashMap::new();
        let limit = memory.limit;
        Ok(Box::new(NullArena { backend: self.clone(), spec: spec.clone(), blocks, reserved, limit }))
    }

    fn kv_granule_bytes(&self, granule: KvGranule) -> Result<u64, BackendError> {
        match granule {
            KvGranule::Bytes(bytes) if bytes > 0 => Ok(bytes),
            KvGranule::Page => Ok(1),
            _ => Err(BackendError::BadGranule { granule, reason: "the null backend has none".to_owned() }),
        }
    }

    fn workspace_bytes(
        &self,
        _model_graph: &ModelGraph,
        _graph: &Graph,
        plan: &Plan,
        _kv: &KvSpec,
    ) -> Result<u64, BackendError> {
        Ok(plan.workspace_bytes)
    }

    fn buffer(&self, bytes: u64) -> Result<Box<dyn Buffer>, BackendError> {
        self.allocate("buffer", bytes)?;
        Ok(Box::new(NullBuffer(vec![0.0; bytes.div_ceil(4) as usize])))
    }

    fn compile(
        &self,
        _model_graph: &ModelGraph,
        graph: &Graph,
        plan: &Plan,
        _weights: &dyn LoadedWeights,
        _kv: &KvSpec,
    ) -> Result<Box<dyn Compiled>, BackendError> {
        self.allocate("workspace", plan.workspace_bytes)?;
        self.state().stats.compiles += 1;
        let output = graph.outputs.first().map(|&id| graph.value(id));
        let is_head = output.is_some_and(|desc| desc.row_symbol() == Symbol::Rows);
        Ok(Box::new(NullCompiled {
            backend: self.clone(),
            workspace_bytes: plan.workspace_bytes,
            inputs: graph.inputs.len(),
            width: output.map_or(0, TensorDesc::width) as usize,
            stores_kv: graph.nodes.iter().any(|node| node.op.touches_kv()),
            is_head,
        }))
    }
}

struct NullWeights(u64);

impl LoadedWeights for NullWeights {
    fn resident_bytes(&self) -> u64 {
        self.0
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct NullBuffer(Vec<f32>);

impl Buffer for NullBuffer {
    fn read_f32(&self, first: usize, out: &mut [f32]) -> Result<(), BackendError> {
        out.copy_from_slice(&self.0[first..first + out.len()]);
        Ok(())
    }

    fn host_f32(&self) -> Option<&[f32]> {
        Some(&self.0)
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

struct NullCompiled {
    backend: NullBackend,
    workspace_bytes: u64,
    inputs: usize,
    width: usize,
    stores_kv: bool,
    is_head: bool,
}

impl NullCompiled {
    fn run_head(
        &mut self,
        batch: &Batch<'_>,
        arena: &mut NullArena,
        externals: &mut [&mut dyn Buffer],
    ) -> Result<(), BackendError> {
        let Some(rule) = self.backend.logits.clone() else { return Ok(()) };
        let buffer = externals[self.inputs].as_any_mut().downcast_mut::<NullBuffer>();
        let rows = buffer.expect("a buffer of the null backend").0.chunks_exact_mut(self.width);
        for (&row, logits) in batch.output_rows.iter().zip(rows) {
            rule(&arena.history(batch, row)?, logits);
        }
        Ok(())
    }
}

impl Compiled for NullCompiled {
    fn submit(
        &mut self,
        batch: &Batch<'_>,
        kv: &mut dyn KvArena,
        externals: &mut [&mut dyn Buffer],
    ) -> Result<(), BackendError> {
        self.backend.start_run()?;
        let arena = kv.as_any_mut().downcast_mut::<NullArena>().expect("an arena of the null backend");
        if self.is_head {
            self.run_head(batch, arena, externals)?;
            let stats = &mut self.backend.state().stats;
            stats.head_runs += 1;
            stats.rows += batch.output_rows.len() as u64;
            return Ok(());
        }
        if self.stores_kv {
            arena.store(batch)?;
        }
        let stats = &mut self.backend.state().stats;
        let tokens = batch.token_ids.len() as u64;
        stats.body_runs += 1;
        stats.tokens += tokens;
        stats.largest_step = stats.largest_step.max(tokens);
        Ok(())
    }

    fn wait(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    fn workspace_bytes(&self) -> u64 {
        self.workspace_bytes
    }
}

/// The rule of [`NullBackend::with_seeded_logits`], for tests that predict what is sampled.
pub fn seeded_logits(seed: u64, history: &[u32], logits: &mut [f32]) {
    let state = history.iter().fold(mix(seed), |state, &token| mix(state ^ u64::from(token)));
    for (token, logit) in logits.iter_mut().enumerate() {
        // 24 bits of the hash, scaled to -1..1.
        *logit = (mix(state ^ (token as u64 + 1)) >> 40) as f32 / 8_388_608.0 - 1.0;
    }
    let favourite = (state % logits.len() as u64) as usize;
    logits[favourite] = 8.0;
}

/// The output function of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators").
fn mix(state: u64) -> u64 {
    let mut bits = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
