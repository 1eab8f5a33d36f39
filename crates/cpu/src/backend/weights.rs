//! A model's weights as this backend keeps them: matrices in panels, vectors as f32.
//!
//! Workers read the file's bytes in pieces that fit into the second-level cache (256 KiB for each
//! thread, or a panel where that is more) and pack them at once. The file is not mapped: a mapped
//! file that somebody cuts short is a fatal signal instead of an error, the process seems to hold
//! the file beside its weights (648 MB at most instead of 516 for Qwen2.5-0.5B), all of it needs
//! addresses, and page faults cost as much as copies (load and one token take 0.28 s either way;
//! Qwen2.5-1.5B 0.62 mapped, 0.49 read).
//!
//! Packed weights take the file's bytes; those with a codebook (IQ, MXFP4, NVFP4) take 4.5 bits and
//! a little each. Memory is added up by what [`CpuWeights::bytes`] says. A tied embedding is packed
//! once: its rows are gathered from the panels.

use std::any::Any;
use std::fmt::Display;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minfer_graph::backend::{LoadedWeights, WeightSource};
use minfer_graph::{BackendError, ModelGraph, Op, WeightDesc, WeightId};
use minfer_tensor::blocks;

use super::NAME;
use crate::Pool;
use crate::memory::Mapping;
use crate::pack::{PackedMatrix, UnpackedPanels};
use crate::threads::DefaultFloatMode;

/// Bytes of the file that are read and packed at once, unless a panel takes more.
const CHUNK_BYTES: usize = 256 << 10;

/// Weights of a model graph; cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct CpuWeights(Arc<Vec<Weight>>);

#[derive(Debug)]
enum Weight {
    /// An operand of `Embed` or `Linear`.
    Matrix(PackedMatrix),
    /// A norm's weight or a bias.
    Vector(Vec<f32>),
    /// No graph uses it.
    Unused,
}

impl CpuWeights {
    /// Packs what the graphs use; workers of the pool share the panels.
    ///
    /// # Errors
    /// Memory was refused, or a weight's bytes are not what its description says.
    pub(super) fn load(
        model_graph: &ModelGraph,
        source: &dyn WeightSource,
        pool: &Pool,
    ) -> Result<CpuWeights, BackendError> {
        let _mode = DefaultFloatMode::set();
        let usage = usage(model_graph);
        let mut weights = allocate(model_graph, &usage)?;
        for (index, weight) in weights.iter_mut().enumerate() {
            if let Weight::Vector(values) = weight {
                let id = WeightId(index as u32);
                *values = read_vector(model_graph.weight(id), id, source)?;
                source.taken(id);
            }
        }
        pack_all(model_graph, &mut weights, source, pool)?;
        Ok(CpuWeights(Arc::new(weights)))
    }

    /// What each weight of a model graph takes when it is loaded; the file's bytes for one that
    /// cannot be.
    pub(super) fn bytes(model_graph: &ModelGraph) -> Vec<u64> {
        let of = |(desc, usage): (&WeightDesc, Usage)| match usage {
            Usage::Unused => 0,
            Usage::Vector => 4 * u64::from(desc.columns()) * u64::from(desc.rows()),
            Usage::Matrix => footprint(desc).map_or_else(|_| desc.bytes(), |bytes| bytes as u64),
        };
        model_graph.weights.iter().zip(usage(model_graph)).map(of).collect()
    }

    /// A matrix that was packed.
    pub(super) fn matrix(&self, id: WeightId) -> &PackedMatrix {
        match &self.0[id.0 as usize] {
            Weight::Matrix(matrix) => matrix,
            _ => panic!("weight {} is not a matrix of its graph", id.0),
        }
    }

    /// Whether every matrix has the shape that a model graph says. Steps are planned by that shape.
    ///
    /// # Errors
    /// The weights are those of another model.
    pub(super) fn check(&self, model_graph: &ModelGraph) -> Result<(), BackendError> {
        if self.0.len() != model_graph.weights.len() {
            let reason = format!("{} weights are loaded, not {}", self.0.len(), model_graph.weights.len());
            return Err(BackendError::Device { backend: NAME.to_owned(), reason });
        }
        for (weight, desc) in self.0.iter().zip(&model_graph.weights) {
            let Weight::Matrix(matrix) = weight else { continue };
            let shape = (desc.dtype, desc.rows() as usize, desc.columns() as usize);
            if (matrix.dtype(), matrix.rows(), matrix.columns()) != shape {
                return Err(failed(desc, &"the loaded weight has another type or shape"));
            }
        }
        Ok(())
    }

    /// The memory of all matrices, in their order.
    fn memory(&self) -> Vec<&[u8]> {
        let matrices = self.0.iter().filter_map(|weight| match weight {
            Weight::Matrix(matrix) => Some(matrix.memory()),
            _ => None,
        });
        matrices.collect()
    }

    /// A vector as f32.
    pub(super) fn vector(&self, id: WeightId) -> &[f32] {
        match &self.0[id.0 as usize] {
            Weight::Vector(values) => values,
            _ => panic!("weight {} is not a vector of its graph", id.0),
        }
    }
}

/// The memory of packed matrices, in their order; nothing if another backend keeps the weights.
pub(crate) fn packed_memory(weights: &dyn LoadedWeights) -> Vec<&[u8]> {
    weights.as_any().downcast_ref().map_or_else(Vec::new, CpuWeights::memory)
}

impl LoadedWeights for CpuWeights {
    fn resident_bytes(&self) -> u64 {
        let bytes = |weight: &Weight| match weight {
            Weight::Matrix(matrix) => matrix.resident_bytes() as u64,
            Weight::Vector(values) => 4 * values.len() as u64,
            Weight::Unused => 0,
        };
        self.0.iter().map(bytes).sum()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Usage {
    Unused,
    Matrix,
    Vector,
}

fn usage(model_graph: &ModelGraph) -> Vec<Usage> {
    let mut usage = vec![Usage::Unused; model_graph.weights.len()];
    for op in model_graph.body.nodes.iter().chain(&model_graph.head.nodes).map(|node| &node.op) {
        for id in op.weights() {
            usage[id.0 as usize] = Usage::Vector;
        }
        let matrices = match op {
            Op::Embed { table, .. } => vec![*table],
            Op::Linear { parts } => parts.iter().map(|part| part.weight).collect(),
            _ => Vec::new(),
        };
        for id in matrices {
            usage[id.0 as usize] = Usage::Matrix;
        }
    }
    usage
}

/// Takes the memory of all matrices in one mapping, so that small ones share huge pages.
fn allocate(model_graph: &ModelGraph, usage: &[Usage]) -> Result<Vec<Weight>, BackendError> {
    let used = |wanted: Usage| {
        let pairs = model_graph.weights.iter().zip(usage);
        pairs.filter(move |(_, usage)| **usage == wanted).map(|(desc, _)| desc)
    };
    let mut bytes = 0;
    for desc in used(Usage::Matrix) {
        bytes += footprint(desc)?;
    }
    let mut memory = Mapping::new(bytes)
        .map_err(|_| BackendError::OutOfMemory { what: "packed weights".to_owned(), bytes: bytes as u64 })?;
    let pairs = model_graph.weights.iter().zip(usage);
    pairs
        .map(|(desc, usage)| match usage {
            Usage::Unused => Ok(Weight::Unused),
            Usage::Vector => Ok(Weight::Vector(Vec::new())),
            Usage::Matrix => {
                let (rows, columns) = (desc.rows() as usize, desc.columns() as usize);
                let matrix = PackedMatrix::allocate(&mut memory, desc.dtype, rows, columns);
                matrix.map(Weight::Matrix).map_err(|cause| failed(desc, &cause))
            }
        })
        .collect()
}

fn footprint(desc: &WeightDesc) -> Result<usize, BackendError> {
    let bytes = PackedMatrix::footprint(desc.dtype, desc.rows() as usize, desc.columns() as usize);
    bytes.map_err(|cause| failed(desc, &cause))
}

fn read_vector(desc: &WeightDesc, id: WeightId, source: &dyn WeightSource) -> Result<Vec<f32>, BackendError> {
    let mut bytes = Vec::new();
    fit(&mut bytes, source.stored_bytes(id) as usize)?;
    source.read(id, 0, &mut bytes)?;
    let mut values = vec![0.0; desc.columns() as usize * desc.rows() as usize];
    match blocks::decode_row(desc.dtype, &bytes, &mut values) {
        Ok(()) => Ok(values),
        Err(cause) => Err(failed(desc, &cause)),
    }
}

/// Gives a buffer this length.
fn fit(bytes: &mut Vec<u8>, length: usize) -> Result<(), BackendError> {
    let more = length.saturating_sub(bytes.len());
    if bytes.try_reserve_exact(more).is_err() {
        return Err(BackendError::OutOfMemory { what: "reading weights".to_owned(), bytes: length as u64 });
    }
    bytes.resize(length, 0);
    Ok(())
}

fn failed(desc: &WeightDesc, cause: &dyn Display) -> BackendError {
    BackendError::Device { backend: NAME.to_owned(), reason: format!("{}: {cause}", desc.name) }
}

/// A run of panels of one matrix, and how many panels of that matrix are still to be packed.
struct Chunk<'a> {
    id: WeightId,
    desc: &'a WeightDesc,
    panels: UnpackedPanels<'a>,
    left: Arc<AtomicUsize>,
}

fn pack_all(
    model_graph: &ModelGraph,
    weights: &mut [Weight],
    source: &dyn WeightSource,
    pool: &Pool,
) -> Result<(), BackendError> {
    let mut chunks = Vec::new();
    for (index, weight) in weights.iter_mut().enumerate() {
        let Weight::Matrix(matrix) = weight else { continue };
        let id = WeightId(index as u32);
        let (desc, left) = (model_graph.weight(id), Arc::new(AtomicUsize::new(matrix.panels())));
        let together = (CHUNK_BYTES / matrix.stored_bytes_of_panel().max(1)).max(1);
        let chunk = |panels| Chunk { id, desc, panels, left: Arc::clone(&left) };
        chunks.extend(matrix.parts(together).map(chunk));
    }
    let queue = Mutex::new(chunks.into_iter());
    let failure: Mutex<Option<BackendError>> = Mutex::new(None);
    pool.run(&|_, _| {
        let mut bytes = Vec::new();
        // The queue is locked for the length of the statement alone.
        while let Some(chunk) = { lock(&queue).next() } {
            if lock(&failure).is_some() {
                return;
            }
            if let Err(cause) = chunk.pack(source, &mut bytes) {
                lock(&failure).get_or_insert(cause);
            }
        }
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Chunk<'_> {
    /// Reads the rows into `bytes` and packs them.
    fn pack(mut self, source: &dyn WeightSource, bytes: &mut Vec<u8>) -> Result<(), BackendError> {
        let stored = self.panels.stored();
        fit(bytes, stored.len())?;
        source.read(self.id, stored.start as u64, bytes)?;
        self.panels.pack(bytes).map_err(|cause| failed(self.desc, &cause))?;
        let packed = self.panels.count();
        if self.left.fetch_sub(packed, Ordering::AcqRel) == packed {
            source.taken(self.id);
        }
        Ok(())
    }
}
