//! The model as a graph of operations over symbolic dimensions, and the executor that runs it.
//!
//! A [`Graph`] is built once when a model is loaded. Everything that changes from step to step is
//! in a [`Batch`]. Devices implement the [`Backend`] trait; they see neither model files nor the
//! scheduler.
#![forbid(unsafe_code)]

pub mod backend;
mod batch;
pub mod builder;
pub mod check;
mod dim;
pub mod dot;
pub mod executor;
mod graph;
pub mod json;
mod kv;
mod kv_memory;
pub mod null;
mod op;
pub mod passes;
pub mod place;
pub mod plan;
pub mod verify;

pub use backend::{Backend, BackendError, Support};
pub use batch::{Batch, BlockTable, EVICTED, KvGroupBatch, KvPlace, KvRun, SequenceView};
pub use builder::{GraphBuilder, ModelGraphBuilder};
pub use check::{BatchCheck, BatchError};
pub use dim::{Dim, Extents, Symbol, TensorDesc};
pub use executor::{Executor, ExecutorConfig, ExecutorError, ExecutorStats, Prepared};
pub use graph::{Graph, KvLayer, ModelGraph, Node, NodeId, ValueId, WeightDesc, WeightId};
pub use kv::{
    CommitGeometry, KvArrangement, KvChoice, KvFormat, KvGroupSpec, KvLayout, KvOrder, KvSide, KvSpec,
    KvSpecError, KvStrides, commit_geometry,
};
pub use kv_memory::{KvGranule, KvMemory, KvMemoryStats};
pub use null::{NullBackend, NullStats};
pub use op::{
    Activation, AttentionSpec, EmbedBy, F32Bits, F64Bits, LinearPart, Mask, NormKind, NormSpec, Op,
    RopePairs, RopeSpec, RopeStoreSpec,
};
pub use passes::{Rewrite, RewriteError, RewriteReport};
pub use place::{PlaceError, Placement, Split};
pub use plan::{Location, Plan};
pub use verify::{Fault, VerifyError};
