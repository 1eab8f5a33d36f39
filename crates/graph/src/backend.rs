//! The `Backend` trait: weights, buffers, KV arena and compiled graphs of one device.
//!
//! A backend knows no model family, no file format and no scheduling policy.

use std::any::Any;
use std::ops::Range;

use crate::plan::Plan;
use crate::{
    Batch, Graph, KvGranule, KvMemory, KvMemoryStats, KvSide, KvSpec, ModelGraph, Op, TensorDesc, WeightDesc,
    WeightId,
};

/// Source of weight bytes while a backend loads. Reads may come from several threads at once.
pub trait WeightSource: Sync {
    /// Size of a weight's stored bytes.
    fn stored_bytes(&self, id: WeightId) -> u64;

    /// Copies stored bytes of a weight into `target`, from byte `offset` on.
    ///
    /// # Errors
    /// The source cannot be read.
    ///
    /// # Panics
    /// May panic if `offset + target.len()` is past the end of the weight.
    fn read(&self, id: WeightId, offset: u64, target: &mut [u8]) -> Result<(), WeightError>;

    /// Called when the backend has the whole weight and will not read it again.
    fn taken(&self, _id: WeightId) {}
}

/// Why a weight cannot be read, with the file and position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WeightError(pub String);

/// Whether a backend runs an operation on given shapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Support {
    /// Yes.
    Supported,
    /// No; the reason names the values that are not supported.
    Unsupported(String),
}

/// Errors of a backend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// An operation that the backend cannot run.
    #[error("{backend} cannot run {node} ({op}): {reason}")]
    Unsupported {
        /// The backend's name.
        backend: String,
        /// The node's name.
        node: String,
        /// The operation's name.
        op: String,
        /// The values that are not supported.
        reason: String,
    },
    /// A weight could not be read.
    #[error(transparent)]
    Weight(#[from] WeightError),
    /// The operating system or the device refused memory.
    #[error("{what}: {bytes} bytes of memory were refused")]
    OutOfMemory {
        /// What the memory was for.
        what: String,
        /// How much was asked for.
        bytes: u64,
    },
    /// The operating system or the device refused a range of addresses.
    #[error("{what}: {bytes} bytes of address space were refused ({reason})")]
    NoAddresses {
        /// What the addresses were for.
        what: String,
        /// How many were asked for.
        bytes: u64,
        /// What the system said.
        reason: String,
    },
    /// A block would take the KV arena past its limit. The system was not asked.
    #[error("the KV cache may hold {limit} bytes, {committed} are in use and {wanted} more are wanted")]
    OverKvLimit {
        /// Bytes that the arena may hold.
        limit: u64,
        /// Bytes in use, each granule counted once.
        committed: u64,
        /// Bytes of granules that the block would add.
        wanted: u64,
    },
    /// A granule that the device does not have.
    #[error("a KV granule of {granule} cannot be used: {reason}")]
    BadGranule {
        /// What was asked for.
        granule: KvGranule,
        /// Why not.
        reason: String,
    },
    /// A batch that does not fit the planned extents or the arena.
    #[error("the batch does not fit: {0}")]
    BadBatch(String),
    /// The device failed.
    #[error("{backend} failed: {reason}")]
    Device {
        /// The backend's name.
        backend: String,
        /// What it reported.
        reason: String,
    },
}

/// A device that runs graphs.
pub trait Backend: Send + Sync {
    /// Short name: `cpu`, `cuda0`, `null`.
    fn name(&self) -> &str;

    /// Whether `op` runs here on these operand and result descriptions. `weights` are those that
    /// the payload names, in the order of [`Op::weights`].
    fn supports(
        &self,
        op: &Op,
        inputs: &[&TensorDesc],
        outputs: &[&TensorDesc],
        weights: &[&WeightDesc],
        kv: &KvSpec,
    ) -> Support;

    /// Bytes that [`load`](Backend::load) keeps of each weight of the model graph, in the model
    /// graph's order: 0 for one that no graph uses. They may be more or fewer than the file's; a
    /// weight that `load` refuses counts as the file's.
    fn weight_bytes(&self, model_graph: &ModelGraph) -> Vec<u64>;

    /// Packs or uploads every weight that the model graph's graphs use. A weight used twice is
    /// stored once.
    ///
    /// # Errors
    /// Memory was refused, or a weight's type cannot be used in the way the graphs ask.
    fn load(
        &self,
        model_graph: &ModelGraph,
        source: &dyn WeightSource,
    ) -> Result<Box<dyn LoadedWeights>, BackendError>;

    /// Reserves the address range of a KV arena; memory is taken block by block, as `memory` says.
    ///
    /// # Errors
    /// The reservation was refused, or the granule is none that the device has.
    fn kv_arena(&self, spec: &KvSpec, memory: KvMemory) -> Result<Box<dyn KvArena>, BackendError>;

    /// Bytes of a KV arena's granule.
    ///
    /// # Errors
    /// The device has no such granule.
    fn kv_granule_bytes(&self, granule: KvGranule) -> Result<u64, BackendError>;

    /// Memory for a value that crosses the edge of a graph.
    ///
    /// # Errors
    /// Memory was refused.
    fn buffer(&self, bytes: u64) -> Result<Box<dyn Buffer>, BackendError>;

    /// Bytes of workspace that [`compile`](Backend::compile) takes.
    ///
    /// # Errors
    /// An operation is not supported.
    fn workspace_bytes(
        &self,
        model_graph: &ModelGraph,
        graph: &Graph,
        plan: &Plan,
        kv: &KvSpec,
    ) -> Result<u64, BackendError>;

    /// Lowers a graph to this device's own steps and takes its workspace.
    ///
    /// # Errors
    /// An operation is not supported, or memory was refused.
    fn compile(
        &self,
        model_graph: &ModelGraph,
        graph: &Graph,
        plan: &Plan,
        weights: &dyn LoadedWeights,
        kv: &KvSpec,
    ) -> Result<Box<dyn Compiled>, BackendError>;

    /// Calls `job` once for each index below `count` and returns when all calls have. A backend with threads of the host
    /// makes the calls on them, in any order.
    ///
    /// # Panics
    /// `job` panics.
    fn run_jobs(&self, count: usize, job: &(dyn Fn(usize) + Sync)) {
        (0..count).for_each(job);
    }
}

/// Weights as a backend keeps them.
pub trait LoadedWeights: Send + Sync {
    /// Bytes of memory that they occupy.
    fn resident_bytes(&self) -> u64;
    /// For the backend's own downcast.
    fn as_any(&self) -> &dyn Any;
}

/// Memory of a value that crosses the edge of a graph.
pub trait Buffer: Send {
    /// Copies f32 elements from `first` on to the host.
    ///
    /// # Errors
    /// The device failed.
    fn read_f32(&self, first: usize, out: &mut [f32]) -> Result<(), BackendError>;
    /// The elements, where the buffer is in host memory.
    fn host_f32(&self) -> Option<&[f32]>;
    /// For the backend's own downcast.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// Consecutive K or V rows of one layer in one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvRows {
    /// The group.
    pub group: usize,
    /// The layer's index inside the group.
    pub layer_index: usize,
    /// K or V.
    pub side: KvSide,
    /// The block.
    pub block: u32,
    /// Offsets in the block.
    pub rows: Range<u32>,
}

/// Memory of the KV blocks. The engine's store decides which block holds which tokens.
pub trait KvArena: Send {
    /// The geometry it was made with.
    fn spec(&self) -> &KvSpec;

    /// Commits a block's memory. Its contents are undefined until rows are stored.
    ///
    /// # Errors
    /// The limit would be passed ([`BackendError::OverKvLimit`]), or memory was refused; no block
    /// has changed.
    fn commit(&mut self, group: usize, block: u32) -> Result<(), BackendError>;

    /// Releases a block's memory to the system, or keeps it warm for the next block.
    fn release(&mut self, group: usize, block: u32);

    /// Copies rows of one block to the same offsets of another, for every layer of the group. Both
    /// blocks are committed.
    ///
    /// # Errors
    /// The device failed; the rows of `to` are undefined then.
    fn copy_rows(&mut self, group: usize, from: u32, to: u32, rows: Range<u32>) -> Result<(), BackendError>;

    /// Reads neighbouring rows of one layer and side as canonical rows: `[position][head][dim]`,
    /// each head encoded by the side's format, little-endian. `out` has
    /// [`KvGroupSpec::row_bytes`](crate::KvGroupSpec::row_bytes) for each row.
    ///
    /// # Errors
    /// The device failed.
    fn read_rows(&self, rows: &KvRows, out: &mut [u8]) -> Result<(), BackendError>;

    /// Writes what [`read_rows`](Self::read_rows) read, perhaps from an arena of another layout or
    /// block size.
    ///
    /// # Errors
    /// The device failed; the rows are undefined then.
    fn write_rows(&mut self, rows: &KvRows, bytes: &[u8]) -> Result<(), BackendError>;

    /// Bytes of the granules in which committed blocks lie, each counted once.
    fn committed_bytes(&self) -> u64;

    /// Bytes of address space reserved.
    fn reserved_bytes(&self) -> u64;

    /// Memory of the arena. The default is for arenas that keep nothing warm.
    fn memory(&self) -> KvMemoryStats {
        let (reserved, committed) = (self.reserved_bytes(), self.committed_bytes());
        KvMemoryStats { reserved, committed, warm: 0, granule: 1, limit: None }
    }

    /// Addresses of a group's memory in this process, whether in memory or not; `None` where a
    /// device keeps it. They never change.
    fn addresses(&self, _group: usize) -> Option<Range<usize>> {
        None
    }

    /// For the backend's own downcast.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// A graph lowered to a device.
pub trait Compiled: Send {
    /// Starts a run on this step's data. `externals` are the graph's inputs, then its outputs, in
    /// order.
    ///
    /// # Errors
    /// The batch does not fit, or the device failed; outputs are undefined then.
    fn submit(
        &mut self,
        batch: &Batch<'_>,
        kv: &mut dyn KvArena,
        externals: &mut [&mut dyn Buffer],
    ) -> Result<(), BackendError>;

    /// Waits for the last submitted run. Returns at once where `submit` finishes the run.
    ///
    /// # Errors
    /// The device failed.
    fn wait(&mut self) -> Result<(), BackendError>;

    /// Bytes of workspace that it holds.
    fn workspace_bytes(&self) -> u64;
}
