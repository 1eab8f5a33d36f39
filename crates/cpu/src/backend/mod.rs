//! The backend itself: what it supports, how it keeps weights, and how a graph becomes a list of
//! steps.
//!
//! [`lower`] turns a graph into steps. A linear operation on quantised weights gets a `Quantise`
//! step for its input, once for each value. Attention becomes `AttentionTiles` and, where a long
//! sequence is split between workers, `AttentionFold`. All rotations with the same angles share one
//! `Angles` step. A step's work is split by rows, or into chunks that workers claim.
//!
//! Every worker walks the whole list ([`compiled`]). [`schedule`] places a barrier before each
//! step, but not where the step and all steps since the last barrier are split by the same rows and
//! no row of one shares memory with another row of the other. Workers spin for tens of microseconds
//! at a barrier, then sleep.
//!
//! Memory safety rests on three checks: [`schedule`] refuses a plan in which a step would write
//! what another worker reads, [`check`] refuses a batch in which two rows go to one cell, and
//! [`weights`] refuses weights of another model.
//!
//! The plan gives every value of a graph a place in one workspace by its lifetime. Views share
//! bytes; the result of an elementwise operation takes the place of an operand that is not read
//! again.

mod buffer;
mod check;
#[allow(unsafe_code, reason = "the workers of a run share its memory; the promise stands here")]
mod compiled;
mod lower;
mod operand;
mod schedule;
#[allow(unsafe_code, reason = "memory that the workers of a run share")]
mod scratch;
mod step;
mod support;
mod weights;

use std::sync::Arc;

use minfer_graph::backend::{Buffer, Compiled, KvArena, LoadedWeights, WeightSource};
use minfer_graph::plan::Plan;
use minfer_graph::{
    Backend, BackendError, Graph, KvGranule, KvMemory, KvSpec, ModelGraph, Op, Support, TensorDesc,
    WeightDesc,
};

use crate::arena::{CpuArena, granule_bytes};
use crate::profile::Profiler;
use crate::threads::ChunkCounter;
use crate::{Isa, Pool};
use buffer::HostBuffer;
use compiled::CompiledGraph;
use weights::CpuWeights;
pub(crate) use weights::packed_memory;

/// The backend's name.
pub(crate) const NAME: &str = "cpu";

/// Runs graphs on the processor's cores. Cheap to clone; the pool is lent.
#[derive(Debug, Clone)]
pub struct CpuBackend {
    isa: Isa,
    pool: Arc<Pool>,
    /// Threads that [`Backend::workspace_bytes`] is for.
    sized_for: usize,
    profiler: Option<Arc<Profiler>>,
}

impl CpuBackend {
    /// A backend that uses one instruction set and a pool of threads.
    ///
    /// # Panics
    /// The processor lacks the instruction set; [`Isa::choose`] never gives such a one.
    pub fn new(isa: Isa, pool: Arc<Pool>) -> CpuBackend {
        assert!(isa.is_available(), "this processor has no {isa}");
        let sized_for = pool.threads();
        CpuBackend { isa, pool, sized_for, profiler: None }
    }

    /// The same backend, whose sizes are those of a pool of `threads`. For estimates: what it
    /// compiles has the sizes of its own pool.
    pub fn sized_for(self, threads: usize) -> CpuBackend {
        CpuBackend { sized_for: threads, ..self }
    }

    /// The same backend, which measures what it runs.
    pub fn profiled(self, profiler: Arc<Profiler>) -> CpuBackend {
        CpuBackend { profiler: Some(profiler), ..self }
    }
}

impl Backend for CpuBackend {
    fn name(&self) -> &str {
        NAME
    }

    fn supports(
        &self,
        op: &Op,
        _inputs: &[&TensorDesc],
        _outputs: &[&TensorDesc],
        weights: &[&WeightDesc],
        kv: &KvSpec,
    ) -> Support {
        match support::objection(op, weights, kv) {
            None => Support::Supported,
            Some(reason) => Support::Unsupported(reason),
        }
    }

    fn weight_bytes(&self, model_graph: &ModelGraph) -> Vec<u64> {
        CpuWeights::bytes(model_graph)
    }

    fn load(
        &self,
        model_graph: &ModelGraph,
        source: &dyn WeightSource,
    ) -> Result<Box<dyn LoadedWeights>, BackendError> {
        Ok(Box::new(CpuWeights::load(model_graph, source, &self.pool)?))
    }

    fn kv_arena(&self, spec: &KvSpec, memory: KvMemory) -> Result<Box<dyn KvArena>, BackendError> {
        Ok(Box::new(CpuArena::with_memory(spec, memory)?))
    }

    fn kv_granule_bytes(&self, granule: KvGranule) -> Result<u64, BackendError> {
        Ok(granule_bytes(granule)? as u64)
    }

    fn workspace_bytes(
        &self,
        model_graph: &ModelGraph,
        graph: &Graph,
        plan: &Plan,
        kv: &KvSpec,
    ) -> Result<u64, BackendError> {
        CompiledGraph::bytes_for(model_graph, graph, plan, kv, self.sized_for)
    }

    fn buffer(&self, bytes: u64) -> Result<Box<dyn Buffer>, BackendError> {
        Ok(Box::new(HostBuffer::new(bytes, "values between graphs")?))
    }

    fn compile(
        &self,
        model_graph: &ModelGraph,
        graph: &Graph,
        plan: &Plan,
        weights: &dyn LoadedWeights,
        kv: &KvSpec,
    ) -> Result<Box<dyn Compiled>, BackendError> {
        let weights: &CpuWeights =
            weights.as_any().downcast_ref().expect("weights of another backend were given to the CPU");
        let (pool, profiler) = (Arc::clone(&self.pool), self.profiler.clone());
        let compiled = CompiledGraph::new(self.isa, pool, model_graph, graph, plan, weights, kv, profiler)?;
        Ok(Box::new(compiled))
    }

    fn run_jobs(&self, count: usize, job: &(dyn Fn(usize) + Sync)) {
        if count < 2 {
            return (0..count).for_each(job);
        }
        let jobs = ChunkCounter::default();
        self.pool.run(&|_, _| {
            while let Some(claimed) = jobs.claim(count, 1) {
                claimed.for_each(job);
            }
        });
    }
}

#[cfg(test)]
mod tests;
