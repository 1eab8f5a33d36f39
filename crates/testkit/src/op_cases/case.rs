//! One case: its graph, weights and steps, and how a backend runs it.

use std::fmt;

use minfer_graph::backend::{Buffer, KvArena, KvRows, WeightError, WeightSource};
use minfer_graph::plan::{Location, Plan};
use minfer_graph::{
    Backend, BackendError, Extents, Graph, GraphBuilder, KvChoice, KvFormat, KvLayout, KvMemory, KvSide,
    KvSpec, ModelGraph, ModelGraphBuilder, Node, Op, Support, Symbol, ValueId, WeightId, place::node_support,
};
use minfer_tensor::DType;

use super::check::Tolerance;
use super::step::{self, BLOCK_TOKENS, Part, Step};
use crate::synthetic::{TensorData, numpy::NormalRng, random_matrix};

/// One operation on operands of given types and shapes.
pub struct OpCase {
    op: &'static str,
    /// Type of the weights, or format of the KV cache; F32 where there are neither.
    pub types: String,
    /// What else distinguishes the case.
    pub shape: String,
    pub(super) model_graph: ModelGraph,
    pub(super) kv: KvSpec,
    pub(super) weights: Vec<TensorData>,
    pub(super) steps: Vec<Step>,
    pub(super) tolerance: Tolerance,
}

/// What a backend computed in one step.
pub(super) struct StepResult {
    /// Rows of each output of the graph.
    pub(super) outputs: Vec<Vec<f32>>,
    /// Rows of the KV cache that were stored.
    pub(super) stored: Vec<StoredRow>,
}

/// A row of the KV cache as the backend reads it back.
pub(super) struct StoredRow {
    pub(super) layer: u32,
    pub(super) cell: u32,
    pub(super) side: KvSide,
    /// The canonical row.
    pub(super) bytes: Vec<u8>,
}

/// Form of a case's KV cache.
#[derive(Debug, Clone, Copy)]
pub(super) struct KvForm {
    pub(super) format: KvFormat,
    pub(super) layout: KvLayout,
}

/// Everything about a case but its graph.
pub(super) struct Outline {
    pub(super) op: &'static str,
    pub(super) types: String,
    pub(super) shape: String,
    pub(super) parts: Vec<Vec<Part>>,
    pub(super) kv: Option<KvForm>,
    pub(super) tolerance: Tolerance,
}

/// Builds the graph of a case, and makes its weights.
pub(super) struct Maker<'b> {
    pub(super) graph: GraphBuilder<'b>,
    weights: Vec<TensorData>,
    tokens: u32,
}

impl Maker<'_> {
    /// An operand: [tokens, width] of random normals, each row another. It is gathered from an F32
    /// table by token id.
    pub(super) fn operand(&mut self, width: u32) -> ValueId {
        let tokens = self.tokens;
        let table = self.matrix(DType::F32, tokens, width, (width as f32).sqrt());
        self.graph.embed(table)
    }

    /// A random matrix with values of deviation 1 / sqrt(columns).
    pub(super) fn weight(&mut self, dtype: DType, rows: u32, columns: u32) -> WeightId {
        self.matrix(dtype, rows, columns, 1.0)
    }

    /// A random F32 vector around `mean`.
    pub(super) fn vector(&mut self, len: u32, mean: f32) -> WeightId {
        let mut rng = NormalRng::new(self.seed());
        let values: Vec<f32> = (0..len).map(|_| mean + 0.4 * rng.standard_normal() as f32).collect();
        self.add(TensorData::from_f32(&self.name(), &[len as usize], &values))
    }

    fn matrix(&mut self, dtype: DType, rows: u32, columns: u32, factor: f32) -> WeightId {
        let mut tensor = random_matrix(dtype, self.seed(), &self.name(), rows as usize, columns as usize);
        if factor != 1.0 {
            let values: Vec<f32> = tensor.values().iter().map(|value| value * factor).collect();
            tensor = TensorData::from_f32(&tensor.name, &tensor.dims, &values);
        }
        self.add(tensor)
    }

    fn add(&mut self, tensor: TensorData) -> WeightId {
        let dims: Vec<u32> = tensor.dims.iter().map(|&dim| dim as u32).collect();
        let id = self.graph.weight(&tensor.name, tensor.dtype, &dims);
        self.weights.push(tensor);
        id
    }

    fn name(&self) -> String {
        format!("w{}.weight", self.weights.len())
    }

    fn seed(&self) -> u32 {
        1 + self.weights.len() as u32
    }
}

impl OpCase {
    /// A case whose graph `build` makes; it gives the graph's outputs.
    pub(super) fn new(outline: Outline, build: impl FnOnce(&mut Maker<'_>) -> Vec<ValueId>) -> OpCase {
        let Outline { op, types, shape, parts, kv, tolerance } = outline;
        let (steps, tokens, blocks) = step::steps(&parts, kv.is_some());
        let mut builder = ModelGraphBuilder::new();
        let mut maker = Maker { graph: builder.body(), weights: Vec::new(), tokens };
        let outputs = build(&mut maker);
        let Maker { graph, weights, .. } = maker;
        let body = graph.finish(&outputs);
        let model_graph = builder.finish(body, Graph::default());
        let form = kv.unwrap_or(KvForm { format: KvFormat::F32, layout: KvLayout::LaneMajor });
        let choice = KvChoice {
            k_format: form.format,
            v_format: form.format,
            layout: form.layout,
            block_tokens: BLOCK_TOKENS,
            max_blocks: blocks,
        };
        let kv = KvSpec::for_model(&model_graph, choice);
        let case = OpCase { op, types, shape, model_graph, kv, weights, steps, tolerance };
        let verified = case.graph().verify(&case.model_graph.weights);
        assert_eq!(verified, Ok(()), "{case}");
        case
    }

    /// The operation that the case is for.
    pub fn op(&self) -> &Op {
        &self.node().op
    }

    /// Why the backend does not run the case.
    pub fn refusal(&self, backend: &dyn Backend) -> Option<String> {
        let refused =
            |node| match node_support(backend, self.graph(), node, &self.model_graph.weights, &self.kv) {
                Support::Supported => None,
                Support::Unsupported(reason) => Some(reason),
            };
        self.graph().nodes.iter().find_map(refused)
    }

    /// Loads, compiles and runs every step.
    ///
    /// # Errors
    /// The backend refuses or fails.
    pub fn run(&self, backend: &dyn Backend) -> Result<(), BackendError> {
        self.results(backend).map(drop)
    }

    pub(super) fn graph(&self) -> &Graph {
        &self.model_graph.body
    }

    pub(super) fn node(&self) -> &Node {
        let node = self.graph().nodes.iter().rev().find(|node| node.op.name() == self.op);
        node.unwrap_or_else(|| panic!("{self}: the graph has no such operation"))
    }

    pub(super) fn results(&self, backend: &dyn Backend) -> Result<Vec<StepResult>, BackendError> {
        let plan = Plan::make(self.graph(), self.extents());
        let weights = backend.load(&self.model_graph, &Stored(&self.weights))?;
        let mut compiled =
            backend.compile(&self.model_graph, self.graph(), &plan, weights.as_ref(), &self.kv)?;
        let mut arena = backend.kv_arena(&self.kv, KvMemory::default())?;
        for (group, &blocks) in self.kv.max_blocks.iter().enumerate() {
            (0..blocks).try_for_each(|block| arena.commit(group, block))?;
        }
        let buffers: Result<Vec<_>, _> =
            plan.external_bytes.iter().map(|&bytes| backend.buffer(bytes)).collect();
        let mut buffers = buffers?;
        let mut results = Vec::new();
        for step in &self.steps {
            let mut externals: Vec<&mut dyn Buffer> = Vec::new();
            for buffer in &mut buffers {
                externals.push(buffer.as_mut());
            }
            step.with(self.kv.groups.len(), |batch| compiled.submit(batch, arena.as_mut(), &mut externals))?;
            compiled.wait()?;
            let outputs = self.graph().outputs.iter().map(|&id| self.read_output(id, step, &plan, &buffers));
            let stored = self.stored(step, arena.as_ref())?;
            results.push(StepResult { outputs: outputs.collect::<Result<_, _>>()?, stored });
        }
        Ok(results)
    }

    fn extents(&self) -> Extents {
        let most = |count: fn(&Step) -> u32| self.steps.iter().map(count).max().unwrap_or(1);
        Extents { tokens: most(Step::n_tokens), rows: most(Step::n_rows), sequences: most(Step::n_sequences) }
    }

    fn read_output(
        &self,
        id: ValueId,
        step: &Step,
        plan: &Plan,
        buffers: &[Box<dyn Buffer>],
    ) -> Result<Vec<f32>, BackendError> {
        let Location::External { index, offset, row_stride } = plan.locations[id.0 as usize] else {
            panic!("{self}: an output is not in an external buffer")
        };
        let value = self.graph().value(id);
        let rows = if value.row_symbol() == Symbol::Rows { step.n_rows() } else { step.n_tokens() };
        let width = value.width() as usize;
        let mut values = vec![0.0; rows as usize * width];
        for (row, out) in values.chunks_exact_mut(width).enumerate() {
            buffers[index as usize].read_f32(offset as usize + row * row_stride as usize, out)?;
        }
        Ok(values)
    }

    /// The rows that the operation under test stored in this step.
    fn stored(&self, step: &Step, arena: &dyn KvArena) -> Result<Vec<StoredRow>, BackendError> {
        let layer = match self.op() {
            Op::KvStore { layer, .. } => *layer,
            Op::RopeStore(spec) => spec.layer,
            _ => return Ok(Vec::new()),
        };
        let (group, layer_index) = self.kv.locate(layer).expect("the layer stores rows");
        let mut stored = Vec::new();
        for &cell in step.cells() {
            for side in [KvSide::K, KvSide::V] {
                let offset = cell % BLOCK_TOKENS;
                let rows =
                    KvRows { group, layer_index, side, block: cell / BLOCK_TOKENS, rows: offset..offset + 1 };
                let mut bytes = vec![0; self.kv.groups[group].row_bytes(side) as usize];
                arena.read_rows(&rows, &mut bytes)?;
                stored.push(StoredRow { layer, cell, side, bytes });
            }
        }
        Ok(stored)
    }
}

impl fmt::Display for OpCase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}: {}", self.op, self.types, self.shape)
    }
}

/// The stored bytes of a case's weights.
struct Stored<'a>(&'a [TensorData]);

impl WeightSource for Stored<'_> {
    fn stored_bytes(&self, id: WeightId) -> u64 {
        self.0[id.0 as usize].bytes.len() as u64
    }

    fn read(&self, id: WeightId, offset: u64, target: &mut [u8]) -> Result<(), WeightError> {
        target.copy_from_slice(&self.0[id.0 as usize].bytes[offset as usize..][..target.len()]);
        Ok(())
    }
}
