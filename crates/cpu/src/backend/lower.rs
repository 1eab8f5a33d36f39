//! From a graph to a flat list of steps.

use minfer_graph::plan::Plan;
use minfer_graph::{
    AttentionSpec, BackendError, Graph, KvGroupSpec, KvSpec, LinearPart, ModelGraph, Node, NormSpec, Op,
    RopeSpec, Symbol, ValueId,
};

use super::NAME;
use super::operand::{Operand, Place};
use super::schedule::{self, Footprint, Region, Split, barriers};
use super::step::{AttentionStep, LinearInput, PartStep, Step};
use super::support;
use crate::ops::attention::PlanShape;
use crate::ops::linear::terms_read;
use crate::quantise::TermSet;

/// A graph as this backend runs it.
pub(super) struct Lowered {
    /// In order.
    pub(super) steps: Vec<Step>,
    /// For each step whether a barrier stands before it.
    pub(super) barriers: Vec<bool>,
    /// Distinct rotations; each has a table of angles.
    pub(super) ropes: Vec<RopeSpec>,
    /// Distinct shapes of attention; each has a plan of its work.
    pub(super) shapes: Vec<PlanShape>,
    /// Distinct rotations of cached K, without magnitude; each has a table of the angles of a
    /// step's rope offsets.
    pub(super) k_shifts: Vec<RopeSpec>,
    /// Columns of the widest value that is quantised; 0 if none is.
    pub(super) quantised_columns: usize,
    /// What products read of quantised values.
    pub(super) quantised_terms: TermSet,
}

impl Lowered {
    /// Every attention with the geometry of its KV group.
    pub(super) fn attentions<'a>(
        &'a self,
        kv: &'a KvSpec,
    ) -> impl Iterator<Item = (&'a AttentionSpec, &'a KvGroupSpec)> {
        self.steps.iter().filter_map(|step| match step {
            Step::AttentionTiles(AttentionStep { spec, .. }) => {
                Some((spec, &kv.groups[kv.locate(spec.layer)?.0]))
            }
            _ => None,
        })
    }
}

/// Memory that is not the plan's, for footprints: external buffers come first.
const WORKSPACE: usize = 1000;
const QUANTISED: usize = 1001;
const ANGLES: usize = 1002;
const CACHE: usize = 1003;

/// Lowers a verified graph.
///
/// # Errors
/// An operation is not supported.
pub(super) fn lower(
    model_graph: &ModelGraph,
    graph: &Graph,
    plan: &Plan,
    kv: &KvSpec,
) -> Result<Lowered, BackendError> {
    let mut lowering = Lowering {
        model_graph,
        graph,
        plan,
        kv,
        out: Vec::new(),
        ropes: Vec::new(),
        shapes: Vec::new(),
        k_shifts: Vec::new(),
        quantised: None,
        quantised_columns: 0,
        quantised_terms: TermSet::SCALE,
    };
    for node in &graph.nodes {
        lowering.node(node)?;
    }
    let Lowering { out, ropes, shapes, k_shifts, quantised_columns, quantised_terms, .. } = lowering;
    let splits: Vec<_> = out.iter().map(|(step, footprint)| (step.split(), footprint.clone())).collect();
    let steps = out.into_iter().map(|(step, _)| step).collect();
    Ok(Lowered {
        steps,
        barriers: barriers(&splits),
        ropes,
        shapes,
        k_shifts,
        quantised_columns,
        quantised_terms,
    })
}

struct Lowering<'a> {
    model_graph: &'a ModelGraph,
    graph: &'a Graph,
    plan: &'a Plan,
    kv: &'a KvSpec,
    out: Vec<(Step, Footprint)>,
    ropes: Vec<RopeSpec>,
    shapes: Vec<PlanShape>,
    k_shifts: Vec<RopeSpec>,
    /// The value whose 8-bit image is in the scratch memory now.
    quantised: Option<ValueId>,
    quantised_columns: usize,
    quantised_terms: TermSet,
}

impl Lowering<'_> {
    fn node(&mut self, node: &Node) -> Result<(), BackendError> {
        self.check(node)?;
        let input = |index: usize| self.operand(node.inputs[index]);
        let output = |index: usize| self.operand(node.outputs[index]);
        let step = match &node.op {
            Op::View { .. } => return Ok(()),
            Op::Embed { table, by } => Step::Embed { table: *table, by: *by, output: output(0) },
            Op::Norm(norm) => Step::Norm { norm: *norm, input: input(0), output: output(0) },
            Op::AddNorm(norm) => return self.add_norm(node, *norm),
            Op::Linear { parts } => return self.linear(node, parts),
            Op::Rope { rope, heads, head_dim } => {
                let (input, output, head_dim) = (input(0), output(0), *head_dim as usize);
                let (heads, table) = (*heads as usize, self.rope_table(rope));
                let step = Step::Rope { table, heads, head_dim, input, output };
                return self.push_reading(node, step, &[whole(ANGLES)], &[]);
            }
            Op::RopeStore(spec) => {
                let (input, output) = (input(0), output(0));
                let table = self.rope_table(&spec.rope);
                let step = Step::RopeStore { spec: spec.clone(), table, input, output };
                return self.push_reading(node, step, &[whole(ANGLES)], &[whole(CACHE)]);
            }
            Op::KvStore { layer, .. } => {
                let step = Step::KvStore { layer: *layer, k: input(0), v: input(1) };
                return self.push_reading(node, step, &[], &[whole(CACHE)]);
            }
            Op::Attention(spec) => {
                let (q, output) = (input(0), output(0));
                let (plan, k_shift) = (self.attention_plan(spec), self.k_shift(spec));
                let step = AttentionStep { spec: spec.clone(), plan, k_shift, q, output };
                self.push_reading(node, Step::AttentionTiles(step.clone()), &[whole(CACHE)], &[])?;
                Step::AttentionFold(step)
            }
            Op::Activate(function) => {
                Step::Activate { function: *function, input: input(0), output: output(0) }
            }
            Op::GatedActivate(function) => {
                let (gate, up) = (input(0), input(1));
                Step::GatedActivate { function: *function, gate, up, output: output(0) }
            }
            Op::Add => Step::Add { a: input(0), b: input(1), output: output(0) },
            Op::Mul => Step::Mul { a: input(0), b: input(1), output: output(0) },
            Op::Scale { factor } => Step::Scale { factor: factor.get(), input: input(0), output: output(0) },
            Op::SoftCap { cap } => Step::SoftCap { cap: cap.get(), input: input(0), output: output(0) },
            Op::GatherRows => Step::GatherRows { input: input(0), output: output(0) },
        };
        self.push(node, step)
    }

    fn check(&self, node: &Node) -> Result<(), BackendError> {
        let weights: Vec<_> = node.op.weights().into_iter().map(|id| self.model_graph.weight(id)).collect();
        match support::objection(&node.op, &weights, self.kv) {
            None => Ok(()),
            Some(reason) => Err(unsupported(node, reason)),
        }
    }

    fn add_norm(&mut self, node: &Node, norm: NormSpec) -> Result<(), BackendError> {
        let (a, b) = (self.operand(node.inputs[0]), self.operand(node.inputs[1]));
        let (sum, output) = (self.operand(node.outputs[0]), self.operand(node.outputs[1]));
        self.push(node, Step::AddNorm { norm, a, b, sum, output })
    }

    fn linear(&mut self, node: &Node, parts: &[LinearPart]) -> Result<(), BackendError> {
        let (value, input) = (node.inputs[0], self.operand(node.inputs[0]));
        let quantised = parts.iter().any(|part| {
            let dtype = self.model_graph.weight(part.weight).dtype;
            support::takes_quantised_input(dtype)
        });
        if quantised && self.quantised != Some(value) {
            self.quantised = Some(value);
            self.quantised_columns = self.quantised_columns.max(input.columns());
            let image = rows_of(QUANTISED, input.columns());
            let footprint = Footprint { reads: vec![self.region(value)], writes: vec![image] };
            self.out.push((Step::Quantise { input }, footprint));
        }
        let mut column = 0;
        let mut steps = Vec::with_capacity(parts.len());
        for part in parts {
            let weight = self.model_graph.weight(part.weight);
            steps.push(PartStep { weight: part.weight, bias: part.bias, column });
            column += weight.rows() as usize;
            self.quantised_terms = self.quantised_terms.union(terms_read(weight.dtype));
        }
        let (output, columns) = (self.operand(node.outputs[0]), input.columns());
        let input = if quantised { LinearInput::Quantised(input) } else { LinearInput::Plain(input) };
        let image = rows_of(QUANTISED, columns);
        self.push_reading(node, Step::Linear { parts: steps, input, output }, &[image], &[])
    }

    /// The table of a rotation; the step that fills it stands before its first use.
    fn rope_table(&mut self, rope: &RopeSpec) -> usize {
        if let Some(index) = self.ropes.iter().position(|known| known == rope) {
            return index;
        }
        self.ropes.push(rope.clone());
        let table = self.ropes.len() - 1;
        let footprint = Footprint { reads: Vec::new(), writes: vec![whole(ANGLES)] };
        self.out.push((Step::Angles { table }, footprint));
        table
    }

    fn attention_plan(&mut self, spec: &AttentionSpec) -> usize {
        let shape = PlanShape::from(spec);
        let known = self.shapes.iter().position(|known| *known == shape);
        known.unwrap_or_else(|| {
            self.shapes.push(shape);
            self.shapes.len() - 1
        })
    }

    /// The rotation of an attention's k_shift.
    fn k_shift(&mut self, spec: &AttentionSpec) -> Option<usize> {
        let k_shift = RopeSpec { magnitude: 1.0.into(), ..spec.rope.clone()? };
        let known = self.k_shifts.iter().position(|known| *known == k_shift);
        Some(known.unwrap_or_else(|| {
            self.k_shifts.push(k_shift);
            self.k_shifts.len() - 1
        }))
    }

    fn push(&mut self, node: &Node, step: Step) -> Result<(), BackendError> {
        self.push_reading(node, step, &[], &[])
    }

    /// A step that also touches memory which is not in the plan.
    fn push_reading(
        &mut self,
        node: &Node,
        step: Step,
        reads: &[Region],
        writes: &[Region],
    ) -> Result<(), BackendError> {
        let regions = |values: &[ValueId], others: &[Region]| {
            let planned = values.iter().map(|&value| self.region(value));
            planned.chain(others.iter().cloned()).collect()
        };
        let footprint =
            Footprint { reads: regions(&node.inputs, reads), writes: regions(&node.outputs, writes) };
        if let Some(reason) = schedule::objection(step.works_in_place(), &footprint) {
            return Err(unsupported(node, reason.to_owned()));
        }
        self.out.push((step, footprint));
        Ok(())
    }

    fn operand(&self, id: ValueId) -> Operand {
        Operand::of(self.graph, self.plan, id)
            .unwrap_or_else(|| panic!("{} has no place in the plan", self.graph.value(id).name))
    }

    fn region(&self, id: ValueId) -> Region {
        // A value that nobody uses is not touched.
        let Some(operand) = Operand::of(self.graph, self.plan, id) else {
            return Region { memory: WORKSPACE, start: 0, columns: 0, stride: 0, rows: 0 };
        };
        let (place, start, stride, columns) = operand.extent();
        let memory = match place {
            Place::Workspace => WORKSPACE,
            Place::External(index) => index,
        };
        let rows = u64::from(self.plan.extents.of(operand.symbol()));
        Region { memory, start: start as u64, columns: columns as u64, stride: stride as u64, rows }
    }
}

fn unsupported(node: &Node, reason: String) -> BackendError {
    let (node, op) = (node.name.clone(), node.op.name().to_owned());
    BackendError::Unsupported { backend: NAME.to_owned(), node, op, reason }
}

/// All of a memory, of which row `r` is only touched for row `r`.
fn whole(memory: usize) -> Region {
    rows_of(memory, 1)
}

/// As [`whole`], where the place of a row depends on the number of columns.
fn rows_of(memory: usize, columns: usize) -> Region {
    let columns = columns as u64;
    Region { memory, start: 0, columns, stride: columns, rows: u64::from(u32::MAX) }
}

impl Step {
    /// How its work is split between workers.
    pub(super) fn split(&self) -> Split {
        match self {
            // A gathered row comes from anywhere, so it is fenced like chunks.
            Step::Linear { .. }
            | Step::AttentionTiles(_)
            | Step::AttentionFold(_)
            | Step::GatherRows { .. } => Split::Chunks,
            _ => Split::Rows(self.symbol()),
        }
    }

    /// Whether it reads each element of a row before it writes there.
    fn works_in_place(&self) -> bool {
        matches!(
            self,
            Step::Norm { .. }
                | Step::AddNorm { .. }
                | Step::Activate { .. }
                | Step::GatedActivate { .. }
                | Step::Add { .. }
                | Step::Mul { .. }
                | Step::Scale { .. }
                | Step::SoftCap { .. }
        )
    }

    fn symbol(&self) -> Symbol {
        match self {
            Step::Embed { output, .. }
            | Step::Norm { output, .. }
            | Step::AddNorm { output, .. }
            | Step::Linear { output, .. }
            | Step::Rope { output, .. }
            | Step::RopeStore { output, .. }
            | Step::AttentionTiles(AttentionStep { output, .. })
            | Step::AttentionFold(AttentionStep { output, .. })
            | Step::Activate { output, .. }
            | Step::GatedActivate { output, .. }
            | Step::Add { output, .. }
            | Step::Mul { output, .. }
            | Step::Scale { output, .. }
            | Step::SoftCap { output, .. }
            | Step::GatherRows { output, .. } => output.symbol(),
            Step::Quantise { input } => input.symbol(),
            Step::KvStore { k, .. } => k.symbol(),
            Step::Angles { .. } => Symbol::Tokens,
        }
    }
}
