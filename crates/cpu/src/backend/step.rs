//! The steps of a lowered graph and how a worker does its share of each.

use std::ops::Range;

use minfer_graph::{Activation, AttentionSpec, Batch, EmbedBy, NormSpec, RopeStoreSpec, WeightId};

use super::lower::Lowered;
use super::operand::{Memory, Operand};
use super::scratch::SharedScratch;
use super::weights::CpuWeights;
use crate::Isa;
use crate::arena::SharedArena;
use crate::ops::attention::{self, AttentionArgs, KShift};
use crate::ops::kv_store::{StoreTarget, kv_store, rope_store};
use crate::ops::linear::{Chunks, Input, Piece, linear};
use crate::ops::norm::{Norm, add_norm, norm};
use crate::ops::rope::{self, Rotation};
use crate::ops::{activate, elementwise};
use crate::pack::PackedMatrix;
use crate::quantise::QuantisedRows;
use crate::threads::{ChunkCounter, Rows, Worker};

/// One step. Weights are ids, values are places.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Rows of a table.
    Embed {
        table: WeightId,
        by: EmbedBy,
        output: Operand,
    },
    /// Cosines and sines of this step's positions.
    Angles {
        table: usize,
    },
    /// The 8-bit image of a value, for the linear steps that follow.
    Quantise {
        input: Operand,
    },
    /// Products with packed weights.
    Linear {
        parts: Vec<PartStep>,
        input: LinearInput,
        output: Operand,
    },
    Norm {
        norm: NormSpec,
        input: Operand,
        output: Operand,
    },
    AddNorm {
        norm: NormSpec,
        a: Operand,
        b: Operand,
        sum: Operand,
        output: Operand,
    },
    Rope {
        table: usize,
        heads: usize,
        head_dim: usize,
        input: Operand,
        output: Operand,
    },
    KvStore {
        layer: u32,
        k: Operand,
        v: Operand,
    },
    RopeStore {
        spec: RopeStoreSpec,
        table: usize,
        input: Operand,
        output: Operand,
    },
    /// Scores and sums of tiles.
    AttentionTiles(AttentionStep),
    /// What tiles of several workers add up to.
    AttentionFold(AttentionStep),
    Activate {
        function: Activation,
        input: Operand,
        output: Operand,
    },
    GatedActivate {
        function: Activation,
        gate: Operand,
        up: Operand,
        output: Operand,
    },
    Add {
        a: Operand,
        b: Operand,
        output: Operand,
    },
    Mul {
        a: Operand,
        b: Operand,
        output: Operand,
    },
    Scale {
        factor: f32,
        input: Operand,
        output: Operand,
    },
    SoftCap {
        cap: f32,
        input: Operand,
        output: Operand,
    },
    GatherRows {
        input: Operand,
        output: Operand,
    },
}

/// Attention of one layer.
#[derive(Debug, Clone)]
pub(super) struct AttentionStep {
    pub(super) spec: AttentionSpec,
    /// Index of the plan of its work.
    pub(super) plan: usize,
    /// Index of the rotation of the context shift, where K is rotated.
    pub(super) k_shift: Option<usize>,
    pub(super) q: Operand,
    pub(super) output: Operand,
}

/// One matrix of a linear step.
#[derive(Debug, Clone, Copy)]
pub(super) struct PartStep {
    pub(super) weight: WeightId,
    pub(super) bias: Option<WeightId>,
    /// First column of its outputs.
    pub(super) column: usize,
}

/// What a linear step multiplies with.
#[derive(Debug, Clone, Copy)]
pub(super) enum LinearInput {
    /// The 8-bit image of this value, made by the last quantise step.
    Quantised(Operand),
    /// The value itself.
    Plain(Operand),
}

/// Matrices of one linear step at most.
pub(super) const MOST_PARTS: usize = 8;
/// All that one run's steps read.
pub(super) struct Run<'a> {
    pub(super) isa: Isa,
    pub(super) batch: &'a Batch<'a>,
    pub(super) memory: Memory<'a>,
    pub(super) arena: SharedArena<'a>,
    pub(super) weights: &'a CpuWeights,
    pub(super) lowered: &'a Lowered,
    pub(super) scratch: SharedScratch<'a>,
}

impl Step {
    /// Whether there is nothing to do in this run, for any worker. The barrier before the step is
    /// then left out too: the one before the next step stands.
    pub(super) fn is_idle(&self, run: &Run<'_>) -> bool {
        match self {
            Step::AttentionFold(AttentionStep { plan, .. }) => !run.scratch.plans[*plan].needs_finish(),
            _ => false,
        }
    }

    /// The operation, and of products the shape, for a profile.
    pub(super) fn kind(&self, run: &Run<'_>) -> String {
        let name = match self {
            Step::Embed { .. } => "embed",
            Step::Angles { .. } => "angles",
            Step::Quantise { .. } => "quantise",
            Step::Linear { parts, .. } => return run.kind_of_linear(parts),
            Step::Norm { .. } => "norm",
            Step::AddNorm { .. } => "add + norm",
            Step::Rope { .. } => "rope",
            Step::KvStore { .. } => "store",
            Step::RopeStore { .. } => "rope + store",
            Step::AttentionTiles(_) => "attention",
            Step::AttentionFold(_) => "attention fold",
            Step::Activate { .. } => "activate",
            Step::GatedActivate { .. } => "gated activate",
            Step::Add { .. } => "add",
            Step::Mul { .. } => "multiply",
            Step::Scale { .. } => "scale",
            Step::SoftCap { .. } => "soft cap",
            Step::GatherRows { .. } => "gather rows",
        };
        name.to_owned()
    }

    /// Does this worker's share. `counter` is this step's own and starts at zero.
    pub(super) fn run(&self, run: &Run<'_>, worker: Worker, counter: &ChunkCounter) {
        let rows = |operand: &Operand| run.memory.rows(operand);
        let share = |operand: &Operand| worker.share(rows(operand).rows());
        let isa = run.isa;
        match self {
            Step::Embed { table, by, output } => run.embed(share(output), *table, *by, &rows(output)),
            Step::Angles { table } => run.angles(worker.share(run.batch.positions.len()), *table),
            Step::Quantise { input } => run.quantise(share(input), &rows(input)),
            Step::Linear { parts, input, output } => run.linear(worker, counter, parts, input, &rows(output)),
            Step::Norm { norm: spec, input, output } => {
                norm(isa, share(output), &run.norm(spec), &rows(input), &rows(output));
            }
            Step::AddNorm { norm, a, b, sum, output } => {
                let (a, b, sum, output) = (rows(a), rows(b), rows(sum), rows(output));
                add_norm(isa, worker.share(sum.rows()), &run.norm(norm), &a, &b, &sum, &output);
            }
            Step::Rope { table, heads, head_dim, input, output } => {
                let rotation = run.rotation(*table);
                rope::rope(isa, share(output), &rotation, *heads, *head_dim, &rows(input), &rows(output));
            }
            Step::KvStore { layer, k, v } => {
                kv_store(isa, share(k), &run.store_target(*layer), &rows(k), &rows(v));
            }
            Step::RopeStore { spec, table, input, output } => {
                let (rotation, target) = (run.rotation(*table), run.store_target(spec.layer));
                rope_store(isa, share(output), spec, &rotation, &target, &rows(input), &rows(output));
            }
            Step::AttentionTiles(step) => {
                let args = run.attention(step);
                attention::run(isa, worker, counter, &mut run.scratch.attention(worker), &args);
            }
            Step::AttentionFold(step) => {
                let args = run.attention(step);
                attention::finish(isa, counter, &mut run.scratch.attention(worker), &args);
            }
            Step::Activate { function, input, output } => {
                activate::activate(isa, share(output), *function, &rows(input), &rows(output));
            }
            Step::GatedActivate { function, gate, up, output } => {
                activate::gated_activate(
                    isa,
                    share(output),
                    *function,
                    &rows(gate),
                    &rows(up),
                    &rows(output),
                );
            }
            Step::Add { a, b, output } => {
                elementwise::add(isa, share(output), &rows(a), &rows(b), &rows(output));
            }
            Step::Mul { a, b, output } => {
                elementwise::mul(isa, share(output), &rows(a), &rows(b), &rows(output));
            }
            Step::Scale { factor, input, output } => {
                elementwise::scale(isa, share(output), *factor, &rows(input), &rows(output));
            }
            Step::SoftCap { cap, input, output } => {
                elementwise::soft_cap(isa, share(output), *cap, &rows(input), &rows(output));
            }
            Step::GatherRows { input, output } => {
                elementwise::gather_rows(share(output), run.batch.output_rows, &rows(input), &rows(output));
            }
        }
    }
}

impl<'a> Run<'a> {
    fn embed(&self, tokens: Range<usize>, table: WeightId, by: EmbedBy, output: &Rows<'_>) {
        let table = self.weights.matrix(table);
        let indices = match by {
            EmbedBy::Token => self.batch.token_ids,
            EmbedBy::Position => self.batch.positions,
        };
        for token in tokens {
            let index = indices[token] as usize;
            table.gather_row(self.isa, index, output.row_mut(token, 0..output.columns()));
        }
    }

    fn angles(&self, tokens: Range<usize>, table: usize) {
        let spec = &self.lowered.ropes[table];
        rope::fill_table(tokens, spec, self.batch.positions, &self.scratch.angles[table]);
    }

    fn rotation(&self, table: usize) -> Rotation<'_> {
        Rotation { spec: &self.lowered.ropes[table], table: self.scratch.angles[table] }
    }

    /// The 8-bit image of a value; the scratch memory holds one at a time.
    fn image(&self, input: &Rows<'_>) -> QuantisedRows<'a> {
        QuantisedRows::new(
            self.scratch.quantised,
            input.rows(),
            input.columns(),
            self.lowered.quantised_terms,
        )
    }

    fn quantise(&self, tokens: Range<usize>, input: &Rows<'_>) {
        let image = self.image(input);
        for token in tokens {
            image.quantise_row(self.isa, token, input.row(token));
        }
    }

    fn linear(
        &self,
        worker: Worker,
        counter: &ChunkCounter,
        parts: &[PartStep],
        input: &LinearInput,
        output: &Rows<'_>,
    ) {
        let input = match input {
            LinearInput::Quantised(value) => Input::Quantised(self.image(&self.memory.rows(value))),
            LinearInput::Plain(value) => Input::Plain(self.memory.rows(value)),
        };
        let mut matrices: [Option<&PackedMatrix>; MOST_PARTS] = [None; MOST_PARTS];
        for (matrix, part) in matrices.iter_mut().zip(parts) {
            *matrix = Some(self.weights.matrix(part.weight));
        }
        let first = matrices[0].expect("a linear step has a part");
        let matrices = matrices.map(|matrix| matrix.unwrap_or(first));
        let chunks = Chunks::new(&matrices[..parts.len()], output.rows());
        let count = chunks.count();
        // Where weights are streamed each worker reads a run of them; else the shortest claims are
        // the best balanced.
        let claim = || match chunks.streams() {
            true => counter.claim_near(worker, count),
            false => counter.claim(count, 1),
        };
        while let Some(pieces) = claim() {
            for Piece { matrix, panels, tokens } in chunks.joined(pieces) {
                let part = &parts[matrix];
                let bias = part.bias.map(|bias| self.weights.vector(bias));
                linear(self.isa, matrices[matrix], panels, input, tokens, bias, output, part.column);
            }
        }
    }

    /// Type, rows and columns of the matrices of a linear step.
    fn kind_of_linear(&self, parts: &[PartStep]) -> String {
        let matrices = parts.iter().map(|part| self.weights.matrix(part.weight));
        let rows: usize = matrices.clone().map(PackedMatrix::rows).sum();
        let types: std::collections::BTreeSet<&str> =
            matrices.clone().map(|matrix| matrix.dtype().name()).collect();
        let types = types.into_iter().collect::<Vec<_>>().join("+");
        let columns = matrices.map(PackedMatrix::columns).max().unwrap_or_default();
        format!("linear {types} {rows} x {columns}")
    }

    fn norm<'s>(&'s self, spec: &'s NormSpec) -> Norm<'s> {
        let vector = |id: Option<WeightId>| id.map(|id| self.weights.vector(id));
        Norm { spec, weight: vector(spec.weight), bias: vector(spec.bias) }
    }

    fn store_target(&self, layer: u32) -> StoreTarget<'_> {
        let (group, layer_index) = self.locate(layer);
        StoreTarget {
            group: &self.arena.spec.groups[group],
            layer_index,
            cells: self.arena.cells[group],
            rows: self.batch.kv[group].cells,
        }
    }

    fn attention<'s>(&'s self, step: &'s AttentionStep) -> AttentionArgs<'s> {
        let spec = &step.spec;
        let k_shift = |index: usize| {
            let rotation =
                Rotation { spec: &self.lowered.k_shifts[index], table: self.scratch.k_shifts[index] };
            KShift { offsets: self.scratch.rope_offsets, rotation }
        };
        let (group_index, layer_index) = self.locate(spec.layer);
        AttentionArgs {
            spec,
            group: &self.arena.spec.groups[group_index],
            group_index,
            layer_index,
            cells: self.arena.cells[group_index],
            batch: self.batch,
            q: self.memory.rows(&step.q),
            out: self.memory.rows(&step.output),
            k_shift: step.k_shift.map(k_shift),
            sinks: spec.sinks.map(|sinks| self.weights.vector(sinks)),
            plan: &self.scratch.plans[step.plan],
            partials: self.scratch.partials,
        }
    }

    fn locate(&self, layer: u32) -> (usize, usize) {
        self.arena.spec.locate(layer).expect("layers were checked when the graph was lowered")
    }
}
