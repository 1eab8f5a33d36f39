//! Threads, instruction set and memory budget, shared by all models of a process.

use std::sync::Arc;

use minfer_cpu::profile::Profiler;
use minfer_cpu::{CpuBackend, Isa, Pool};
use minfer_graph::Backend;

use crate::{LoadError, MemoryBudget};

/// How many threads, which instruction set, how much memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineOptions {
    /// Threads of the compute pool. `None`: one for each physical core that this process may use.
    pub threads: Option<usize>,
    /// Instruction set. `None`: the widest that the processor has.
    pub isa: Option<Isa>,
    /// Bytes that all models on the machine may take together. `None`: what is free.
    pub memory_limit: Option<u64>,
}

/// Compute pool, instruction set and memory budget. Models on one machine share them; clones are
/// cheap.
#[derive(Debug, Clone)]
pub struct Machine {
    isa: Isa,
    pool: Arc<Pool>,
    /// Threads that sizes are computed for, where they are not those of the pool.
    sized_for: Option<usize>,
    budget: Arc<MemoryBudget>,
    profiler: Option<Arc<Profiler>>,
}

impl Machine {
    /// Starts the compute pool.
    ///
    /// # Errors
    /// The processor lacks the instruction set, or the system refused a thread.
    pub fn new(options: &MachineOptions) -> Result<Machine, LoadError> {
        let isa = Isa::choose(options.isa.map_or("auto", Isa::name))?;
        let threads = options.threads.unwrap_or_else(physical_cores);
        let pool = Pool::new(threads).map_err(|cause| LoadError::Threads { threads, cause })?;
        let budget = MemoryBudget::new(options.memory_limit);
        Ok(Machine { isa, pool: Arc::new(pool), sized_for: None, budget, profiler: None })
    }

    /// The same machine as sizes would be with a pool of `threads`; nothing can be loaded on it.
    pub(crate) fn sized_for(&self, threads: usize) -> Machine {
        Machine { sized_for: Some(threads), ..self.clone() }
    }

    /// The same machine, where models that are loaded from now on measure their steps.
    pub fn profiled(self) -> (Machine, Arc<Profiler>) {
        let profiler = Arc::new(Profiler::new(self.threads()));
        (Machine { profiler: Some(Arc::clone(&profiler)), ..self }, profiler)
    }

    /// The instruction set that kernels use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Threads of the compute pool.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// The compute pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The memory budget.
    pub fn budget(&self) -> &Arc<MemoryBudget> {
        &self.budget
    }

    /// A CPU backend with this machine's pool and instruction set.
    pub fn backend(&self) -> Arc<dyn Backend> {
        let mut backend = CpuBackend::new(self.isa, Arc::clone(&self.pool));
        if let Some(profiler) = &self.profiler {
            backend = backend.profiled(Arc::clone(profiler));
        }
        Arc::new(backend.sized_for(self.sized_for.unwrap_or(self.threads())))
    }
}

/// Physical cores, but not more than this process may use.
fn physical_cores() -> usize {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    num_cpus::get_physical().clamp(1, allowed)
}
