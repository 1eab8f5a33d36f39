//! A lowered graph with its workspace, and the walk over its steps.

use std::sync::Arc;

use minfer_graph::backend::{Buffer, Compiled, KvArena};
use minfer_graph::plan::Plan;
use minfer_graph::{BackendError, Batch, Extents, Graph, KvSpec, ModelGraph};

use super::buffer::HostBuffer;
use super::lower::{Lowered, lower};
use super::operand::Memory;
use super::step::{Run, Scratch};
use super::weights::CpuWeights;
use crate::arena::CpuArena;
use crate::threads::{ChunkCounter, Worker};
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
        Ok(workspace + Scratch::bytes_for(&lowered, plan.extents, kv, workers))
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
    ) -> Result<CompiledGraph, BackendError> {
        let lowered = lower(model_graph, graph, plan, kv)?;
        let workspace = HostBuffer::new(plan.workspace_bytes, "workspace")?;
        let scratch = Scratch::new(&lowered, plan.extents, kv, pool.threads())?;
        let counters = lowered.steps.iter().map(|_| ChunkCounter::default()).collect();
        Ok(CompiledGraph { isa, pool, weights: weights.clone(), lowered, workspace, scratch, counters })
    }
}

impl Compiled for CompiledGraph {
    fn submit(
        &mut self,
        batch: &Batch<'_>,
        kv: &mut dyn KvArena,
        externals: &mut [&mut dyn Buffer],
    ) -> Result<(), BackendError> {
        let arena: &CpuArena =
            kv.as_any_mut().downcast_ref().expect("a KV arena of another backend was given to the CPU");
        let externals = externals.iter_mut().map(|buffer| {
            let buffer: &mut HostBuffer =
                buffer.as_any_mut().downcast_mut().expect("a buffer of another backend was given to the CPU");
            buffer.shared()
        });
        let extents = Extents {
            tokens: batch.token_ids.len() as u32,
            rows: batch.output_rows.len() as u32,
            sequences: batch.sequences.len() as u32,
        };
        let memory = Memory { workspace: self.workspace.shared(), externals: externals.collect(), extents };
        self.counters.iter().for_each(ChunkCounter::reset);
        self.scratch.plan(&self.lowered, batch);
        let run = Run {
            isa: self.isa,
            batch,
            memory,
            arena,
            weights: &self.weights,
            lowered: &self.lowered,
            scratch: self.scratch.shared(),
        };
        let steps = &self.lowered.steps;
        let counters = &self.counters;
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
        self.workspace.bytes() + self.scratch.bytes()
    }
}
