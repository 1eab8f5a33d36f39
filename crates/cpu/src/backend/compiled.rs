//! A compiled graph: its steps and workspace, and the loop in which every worker runs the steps.

use std::sync::Arc;

use minfer_graph::backend::{Buffer, Compiled, KvArena};
use minfer_graph::plan::Plan;
use minfer_graph::{BackendError, Batch, Extents, Graph, KvSpec, ModelGraph, Symbol};

use super::buffer::HostBuffer;
use super::check::BatchCheck;
use super::lower::{Lowered, lower};
use super::operand::Memory;
use super::scratch::Scratch;
use super::step::Run;
use super::weights::CpuWeights;
use crate::arena::CpuArena;
use crate::profile::{Lap, Laps, Profiler};
use crate::threads::{ChunkCounter, DefaultFloatMode, SharedSlice, Worker};
use crate::{Isa, Pool};

/// A graph as a flat list of steps.
pub(super) struct CompiledGraph {
    isa: Isa,
    pool: Arc<Pool>,
    weights: CpuWeights,
    lowered: Lowered,
    workspace: HostBuffer,
    scratch: Scratch,
    counters: Vec<ChunkCounter>,
    /// The largest extents.
    planned: Extents,
    check: BatchCheck,
    profiler: Option<Arc<Profiler>>,
}

impl CompiledGraph {
    /// Bytes of workspace that [`new`](Self::new) takes.
    ///
    /// # Errors
    /// An operation is not supported.
    pub(super) fn bytes_for(
        model_graph: &ModelGraph,
        graph: &Graph,
        plan: &Plan,
        kv: &KvSpec,
        workers: usize,
    ) -> Result<u64, BackendError> {
        let lowered = lower(model_graph, graph, plan, kv)?;
        let workspace = plan.workspace_bytes.next_multiple_of(4);
        let counters = lowered.steps.len() as u64 * ChunkCounter::share_bytes(workers);
        Ok(workspace + counters + Scratch::bytes_for(&lowered, plan.extents, kv, workers))
    }

    /// Lowers the graph and takes its memory.
    ///
    /// # Errors
    /// An operation is not supported, or memory was refused.
    pub(super) fn new(
        isa: Isa,
        pool: Arc<Pool>,
        model_graph: &ModelGraph,
        graph: &Graph,
        plan: &Plan,
        weights: &CpuWeights,
        kv: &KvSpec,
        profiler: Option<Arc<Profiler>>,
    ) -> Result<CompiledGraph, BackendError> {
        let lowered = lower(model_graph, graph, plan, kv)?;
        weights.check(model_graph)?;
        let workspace = HostBuffer::new(plan.workspace_bytes, "workspace")?;
        let scratch = Scratch::new(&lowered, plan.extents, kv, pool.threads())?;
        let counters = lowered.steps.iter().map(|_| ChunkCounter::with_shares(pool.threads())).collect();
        let (weights, check, mut planned) = (weights.clone(), BatchCheck::default(), plan.extents);
        if graph.values.iter().all(|value| value.row_symbol() != Symbol::Rows) {
            // A body reads no output rows, so a batch may have more than the head takes at once.
            planned.rows = u32::MAX;
        }
        Ok(CompiledGraph {
            isa,
            pool,
            weights,
            lowered,
            workspace,
            scratch,
            counters,
            planned,
            check,
            profiler,
        })
    }
}

/// Runs the steps as [`submit`](Compiled::submit) does, with a clock beside each.
fn run_profiled(
    pool: &Pool,
    lowered: &Lowered,
    counters: &[ChunkCounter],
    run: &Run<'_>,
    profiler: &Profiler,
) {
    let kinds: Vec<String> = lowered.steps.iter().map(|step| step.kind(run)).collect();
    pool.run(&|worker: Worker, barrier| {
        let mut laps = Vec::with_capacity(kinds.len());
        let mut clock = Laps::start();
        for (index, step) in lowered.steps.iter().enumerate() {
            if step.is_idle(run) {
                continue;
            }
            if lowered.barriers[index] {
                barrier.wait();
            }
            let waiting = clock.lap();
            step.run(run, worker, &counters[index]);
            laps.push((kinds[index].as_str(), Lap { busy: clock.lap(), waiting }));
        }
        profiler.add(worker.index, laps.into_iter());
    });
}

impl Compiled for CompiledGraph {
    fn submit(
        &mut self,
        batch: &Batch<'_>,
        kv: &mut dyn KvArena,
        externals: &mut [&mut dyn Buffer],
    ) -> Result<(), BackendError> {
        let extents = self.check.extents(batch, self.planned)?;
        let arena: &mut CpuArena =
            kv.as_any_mut().downcast_mut().expect("a KV arena of another backend was given to the CPU");
        let _mode = DefaultFloatMode::set();
        self.counters.iter().for_each(ChunkCounter::reset);
        self.scratch.plan(&self.lowered, batch);
        // SAFETY: the views below end with this function. Each is of memory that is borrowed
        // exclusively, and the steps keep the promise of `threads::shared`: `schedule::objection`
        // refused plans in which a step writes what another worker touches in it,
        // `schedule::barriers` stand where a step touches what another worker wrote, and `check`
        // refused batches with a row or a cell for two workers or with more rows than regions were
        // compared for. Inside a step workers have rows of their own (`Worker::share`) or claim
        // chunks of their own (`ChunkCounter`).
        let share = |memory| unsafe { SharedSlice::share(memory) };
        let externals = externals.iter_mut().map(|buffer| {
            let buffer: &mut HostBuffer =
                buffer.as_any_mut().downcast_mut().expect("a buffer of another backend was given to the CPU");
            share(buffer.floats())
        });
        let externals = externals.collect();
        let run = Run {
            isa: self.isa,
            batch,
            memory: Memory { workspace: share(self.workspace.floats()), externals, extents },
            // SAFETY: as above.
            arena: unsafe { arena.shared() },
            weights: &self.weights,
            lowered: &self.lowered,
            // SAFETY: as above.
            scratch: unsafe { self.scratch.shared() },
        };
        let steps = &self.lowered.steps;
        let counters = &self.counters;
        if let Some(profiler) = &self.profiler {
            run_profiled(&self.pool, &self.lowered, &self.counters, &run, profiler);
            return Ok(());
        }
        self.pool.run(&|worker: Worker, barrier| {
            for ((step, &fenced), counter) in steps.iter().zip(&self.lowered.barriers).zip(counters) {
                if step.is_idle(&run) {
                    continue;
                }
                if fenced {
                    barrier.wait();
                }
                step.run(&run, worker, counter);
            }
        });
        Ok(())
    }

    fn wait(&mut self) -> Result<(), BackendError> {
        Ok(())
    }

    fn workspace_bytes(&self) -> u64 {
        let counters = self.counters.len() as u64 * ChunkCounter::share_bytes(self.pool.threads());
        self.workspace.bytes() + counters + self.scratch.bytes()
    }
}
