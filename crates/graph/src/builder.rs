//! Builds graphs: one method per operation. It checks the operation, infers the shape of the result
//! and names it.
//!
//! A builder panics on what only a bug of a model family can cause: shapes that contradict each
//! other, or one weight name with two shapes. Families check what a file says before they build.

use std::collections::{HashMap, HashSet};

use minfer_tensor::DType;

use crate::verify::output_shapes;
use crate::{
    Activation, AttentionSpec, EmbedBy, Graph, LinearPart, ModelGraph, Node, NormSpec, Op, RopeSpec,
    RopeStoreSpec, Symbol, TensorDesc, ValueId, WeightDesc, WeightId,
};

/// Holds the table of weights while the graphs of a model graph are built.
///
/// ```
/// use minfer_graph::{NormKind, NormSpec, ModelGraphBuilder};
/// use minfer_tensor::DType;
///
/// let mut model_graph = ModelGraphBuilder::new();
/// let table = model_graph.weight("token_embd.weight", DType::F32, &[100, 64]);
/// let mut body = model_graph.body();
/// let x = body.embed(table);
/// let body = body.finish(&[x]);
/// let (mut head, hidden) = model_graph.head(64);
/// let rows = head.gather_rows(hidden);
/// let spec = NormSpec { kind: NormKind::Rms, weight: None, bias: None, eps: 1e-6.into(), groups: 1 };
/// let rows = head.norm(rows, spec, "output_norm");
/// let logits = head.linear(rows, table, None, "output");
/// let head = head.finish(&[logits]);
/// assert_eq!(model_graph.finish(body, head).verify(), Ok(()));
/// ```
#[derive(Debug, Default)]
pub struct ModelGraphBuilder {
    weights: Vec<WeightDesc>,
    by_name: HashMap<String, WeightId>,
    builds: u64,
}

impl ModelGraphBuilder {
    /// No weights yet.
    pub fn new() -> ModelGraphBuilder {
        ModelGraphBuilder::default()
    }

    /// The id of a weight; the same name gives the same id.
    ///
    /// # Panics
    /// The name is known with another type or shape.
    pub fn weight(&mut self, name: &str, dtype: DType, dims: &[u32]) -> WeightId {
        let desc = WeightDesc { name: name.to_owned(), dtype, dims: dims.to_vec() };
        if let Some(&id) = self.by_name.get(name) {
            let known = &self.weights[id.0 as usize];
            assert!(*known == desc, "weight {name} is {desc}, but was {known} before");
            return id;
        }
        let id = WeightId(self.weights.len() as u32);
        self.weights.push(desc);
        self.by_name.insert(name.to_owned(), id);
        id
    }

    /// Starts the graph from token ids to hidden rows.
    pub fn body(&mut self) -> GraphBuilder<'_> {
        self.graph("body")
    }

    /// Starts the graph from hidden rows to logits, and gives its input [tokens, width].
    pub fn head(&mut self, width: u32) -> (GraphBuilder<'_>, ValueId) {
        let mut head = self.graph("head");
        let hidden = head.input(Symbol::Tokens, width, "hidden");
        (head, hidden)
    }

    /// Starts a graph of any name, for example of a single operation under test.
    pub fn graph(&mut self, name: &str) -> GraphBuilder<'_> {
        GraphBuilder {
            model_graph: self,
            graph: Graph { name: name.to_owned(), ..Graph::default() },
            names: HashSet::new(),
        }
    }

    /// Puts the parts together. [`ModelGraph::verify`] says whether they fit.
    pub fn finish(self, body: Graph, head: Graph) -> ModelGraph {
        ModelGraph { weights: self.weights, body, head, builds: self.builds }
    }
}

/// Appends operations to a graph.
///
/// Every method returns its result's id and panics when the operation's rule is broken; the message
/// names node, operation and shapes.
#[derive(Debug)]
pub struct GraphBuilder<'p> {
    model_graph: &'p mut ModelGraphBuilder,
    graph: Graph,
    names: HashSet<String>,
}

impl GraphBuilder<'_> {
    /// The id of a weight; see [`ModelGraphBuilder::weight`].
    ///
    /// # Panics
    /// The name is known with another type or shape.
    pub fn weight(&mut self, name: &str, dtype: DType, dims: &[u32]) -> WeightId {
        self.model_graph.weight(name, dtype, dims)
    }

    /// Rows of a matrix, elements of a vector.
    pub fn weight_rows(&self, weight: WeightId) -> u32 {
        self.model_graph.weights[weight.0 as usize].dims[0]
    }

    /// Elements of a row of a value.
    pub fn width(&self, value: ValueId) -> u32 {
        self.graph.value(value).width()
    }

    /// A value that comes from outside, [symbol, width].
    pub fn input(&mut self, symbol: Symbol, width: u32, name: &str) -> ValueId {
        let name = self.unique(name);
        let id = self.value(TensorDesc::rows(symbol, width, name));
        self.graph.inputs.push(id);
        id
    }

    /// Rows of a table [vocabulary, width] that the token ids name.
    pub fn embed(&mut self, table: WeightId) -> ValueId {
        let name = self.model_graph.weights[table.0 as usize].name.trim_end_matches(".weight").to_owned();
        self.one(Op::Embed { table, by: EmbedBy::Token }, &[], &name)
    }

    /// Rows of a table [positions, width] that the tokens' positions name.
    pub fn embed_positions(&mut self, table: WeightId) -> ValueId {
        let name = self.model_graph.weights[table.0 as usize].name.trim_end_matches(".weight").to_owned();
        self.one(Op::Embed { table, by: EmbedBy::Position }, &[], &name)
    }

    /// A normalisation of rows or of equal parts of rows.
    pub fn norm(&mut self, x: ValueId, spec: NormSpec, name: &str) -> ValueId {
        self.one(Op::Norm(spec), &[x], name)
    }

    /// `x * weight^T + bias`.
    pub fn linear(&mut self, x: ValueId, weight: WeightId, bias: Option<WeightId>, name: &str) -> ValueId {
        self.linear_parts(x, vec![LinearPart { weight, bias }], name)
    }

    /// Several linear maps of one operand, their results side by side.
    pub fn linear_parts(&mut self, x: ValueId, parts: Vec<LinearPart>, name: &str) -> ValueId {
        self.one(Op::Linear { parts }, &[x], name)
    }

    /// Rotates each head by the token's position.
    pub fn rope(&mut self, x: ValueId, rope: &RopeSpec, heads: u32, head_dim: u32) -> ValueId {
        let name = self.derived(x, "rope");
        self.one(Op::Rope { rope: rope.clone(), heads, head_dim }, &[x], &name)
    }

    /// Writes K and V rows of `layer` into the batch's cells. Head dims follow from the widths.
    ///
    /// # Panics
    /// `kv_heads` does not divide a width.
    pub fn kv_store(&mut self, k: ValueId, v: ValueId, layer: u32, kv_heads: u32) {
        let [k_dim, v_dim] = [k, v].map(|value| {
            let width = self.width(value);
            assert!(
                kv_heads > 0 && width.is_multiple_of(kv_heads),
                "blk.{layer}.kv_store: {kv_heads} heads do not divide {}",
                self.graph.value(value)
            );
            width / kv_heads
        });
        self.node(Op::KvStore { layer, kv_heads, k_dim, v_dim }, &[k, v], &format!("blk.{layer}.kv_store"));
    }

    /// Attention over the KV cache of `spec.layer`.
    pub fn attention(&mut self, q: ValueId, spec: AttentionSpec) -> ValueId {
        let name = match self.graph.value(q).name.rsplit_once(".attn_q") {
            Some((block, _)) => format!("{block}.attention"),
            None => format!("blk.{}.attention", spec.layer),
        };
        self.one(Op::Attention(spec), &[q], &name)
    }

    /// An elementwise function.
    pub fn activate(&mut self, x: ValueId, activation: Activation) -> ValueId {
        let name = self.derived(x, activation.name());
        self.one(Op::Activate(activation), &[x], &name)
    }

    /// `activation(gate) * up`.
    pub fn gated_activate(&mut self, gate: ValueId, up: ValueId, activation: Activation) -> ValueId {
        let name = self.derived(gate, activation.name());
        self.one(Op::GatedActivate(activation), &[gate, up], &name)
    }

    /// `a + b`. The name follows `b`, the branch that joins the residual stream.
    pub fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        let name = self.derived(b, "add");
        self.one(Op::Add, &[a, b], &name)
    }

    /// `a * b` element by element.
    pub fn mul(&mut self, a: ValueId, b: ValueId) -> ValueId {
        let name = self.derived(b, "mul");
        self.one(Op::Mul, &[a, b], &name)
    }

    /// `x * factor`.
    pub fn scale(&mut self, x: ValueId, factor: f32) -> ValueId {
        let name = self.derived(x, "scale");
        self.one(Op::Scale { factor: factor.into() }, &[x], &name)
    }

    /// `cap * tanh(x / cap)`.
    pub fn soft_cap(&mut self, x: ValueId, cap: f32) -> ValueId {
        let name = self.derived(x, "soft_cap");
        self.one(Op::SoftCap { cap: cap.into() }, &[x], &name)
    }

    /// The rows that the batch's output rows name.
    pub fn gather_rows(&mut self, x: ValueId) -> ValueId {
        let name = self.derived(x, "rows");
        self.one(Op::GatherRows, &[x], &name)
    }

    /// Columns `offset..offset + width`, without a copy.
    pub fn view(&mut self, x: ValueId, offset: u32, width: u32, name: &str) -> ValueId {
        self.push(Op::View { offset }, &[x], name, Some(width))[0]
    }

    /// The fused form: `(a + b, norm(a + b))`.
    pub fn add_norm(&mut self, a: ValueId, b: ValueId, spec: NormSpec, name: &str) -> (ValueId, ValueId) {
        let results = self.node(Op::AddNorm(spec), &[a, b], name);
        (results[0], results[1])
    }

    /// The fused form: rotates Q and K of a joint row and stores K and V; gives the rotated Q.
    pub fn rope_store(&mut self, qkv: ValueId, spec: RopeStoreSpec) -> ValueId {
        let name = format!("blk.{}.rope_store", spec.layer);
        self.one(Op::RopeStore(spec), &[qkv], &name)
    }

    /// Any operation but a view, with its inferred results.
    ///
    /// # Panics
    /// The operation's rule is broken.
    pub fn node(&mut self, op: Op, inputs: &[ValueId], name: &str) -> Vec<ValueId> {
        self.push(op, inputs, name, None)
    }

    /// The finished graph with its outputs.
    pub fn finish(mut self, outputs: &[ValueId]) -> Graph {
        self.graph.outputs = outputs.to_vec();
        self.model_graph.builds += 1;
        self.graph
    }

    fn one(&mut self, op: Op, inputs: &[ValueId], name: &str) -> ValueId {
        self.node(op, inputs, name)[0]
    }

    fn push(&mut self, op: Op, inputs: &[ValueId], name: &str, view_width: Option<u32>) -> Vec<ValueId> {
        let name = self.unique(name);
        let operands: Vec<&TensorDesc> = inputs.iter().map(|&id| self.graph.value(id)).collect();
        let shapes = output_shapes(&op, &operands, &self.model_graph.weights, view_width)
            .unwrap_or_else(|fault| panic!("{}: {name} ({}): {fault}", self.graph.name, op.name()));
        let outputs: Vec<ValueId> = op
            .result_names(&name)
            .into_iter()
            .zip(shapes)
            .map(|(name, dims)| self.value(TensorDesc { dtype: DType::F32, dims: dims.to_vec(), name }))
            .collect();
        self.graph.nodes.push(Node { op, inputs: inputs.to_vec(), outputs: outputs.clone(), name });
        outputs
    }

    fn value(&mut self, desc: TensorDesc) -> ValueId {
        self.graph.values.push(desc);
        ValueId(self.graph.values.len() as u32 - 1)
    }

    fn derived(&self, source: ValueId, suffix: &str) -> String {
        format!("{}.{suffix}", self.graph.value(source).name)
    }

    /// The name itself, or with a number when it is taken.
    fn unique(&mut self, name: &str) -> String {
        let mut candidate = name.to_owned();
        let mut number = 2;
        while !self.names.insert(candidate.clone()) {
            candidate = format!("{name}.{number}");
            number += 1;
        }
        candidate
    }
}
