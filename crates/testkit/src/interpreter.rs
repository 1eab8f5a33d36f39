//! An f64 interpreter of graphs: every operation written from its definition.
//!
//! It shares no code with a backend, a plan or a rewrite, so tests use it as reference. It is slow.

use std::collections::HashMap;

use minfer_graph::{
    Activation, AttentionSpec, Batch, EmbedBy, Graph, KvSpec, LinearPart, Mask, ModelGraph, NormKind,
    NormSpec, Op, RopePairs, RopeSpec, RopeStoreSpec, Symbol, ValueId, WeightId,
};

/// A row-major matrix of f64.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    /// Elements of a row.
    pub width: usize,
    /// All rows, one after the other.
    pub data: Vec<f64>,
}

impl Matrix {
    /// `rows` rows of zeros.
    pub fn zeros(rows: usize, width: usize) -> Matrix {
        Matrix { width, data: vec![0.0; rows * width] }
    }

    /// Its rows.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &[f64]> {
        self.data.chunks_exact(self.width)
    }

    /// One row.
    pub fn row(&self, index: usize) -> &[f64] {
        &self.data[index * self.width..][..self.width]
    }

    fn from_rows(width: usize, rows: impl IntoIterator<Item = Vec<f64>>) -> Matrix {
        Matrix { width, data: rows.into_iter().flatten().collect() }
    }

    fn columns(&self, offset: usize, width: usize) -> Matrix {
        Matrix::from_rows(width, self.rows().map(|row| row[offset..offset + width].to_vec()))
    }
}

/// K and V rows by layer and cell.
#[derive(Debug, Clone)]
pub struct ReferenceKv {
    spec: KvSpec,
    rows: HashMap<(u32, u32), [Vec<f64>; 2]>,
}

impl ReferenceKv {
    /// Rows are kept in f64, whatever the spec's formats.
    pub fn exact(spec: &KvSpec) -> ReferenceKv {
        ReferenceKv { spec: spec.clone(), rows: HashMap::new() }
    }

    /// The K and V rows of a cell of a layer.
    pub fn cell(&self, layer: u32, cell: u32) -> Option<&[Vec<f64>; 2]> {
        self.rows.get(&(layer, cell))
    }

    fn group(&self, layer: u32) -> usize {
        self.spec.locate(layer).unwrap_or_else(|| panic!("layer {layer} is not in the KV spec")).0
    }

    fn store(&mut self, batch: &Batch<'_>, layer: u32, k: &Matrix, v: &Matrix) {
        let group = self.group(layer);
        for (row, &cell) in batch.kv[group].cells.iter().enumerate() {
            self.rows.insert((layer, cell), [k, v].map(|matrix| matrix.row(row).to_vec()));
        }
    }

    /// The rows of a sequence's positions `range`: K as if it had been rotated at its position, V
    /// as it is.
    fn read(
        &self,
        batch: &Batch<'_>,
        spec: &AttentionSpec,
        sequence: usize,
        range: std::ops::Range<u32>,
    ) -> Vec<(Vec<f64>, &[f64])> {
        let layer = spec.layer;
        let group = self.group(layer);
        let block_tokens = self.spec.groups[group].block_tokens;
        let table = batch.kv[group].block_tables[sequence];
        range
            .map(|position| {
                let place = table.place(position, block_tokens);
                let place = place.unwrap_or_else(|| panic!("layer {layer}, position {position}: evicted"));
                let cell = place.cell(block_tokens);
                let rows = self.rows.get(&(layer, cell));
                let [k, v] = rows
                    .unwrap_or_else(|| panic!("layer {layer}, position {position}: cell {cell} is empty"));
                let mut k = k.clone();
                if let Some(rope) = &spec.rope {
                    let back = -f64::from(place.rope_offset);
                    k.chunks_exact_mut(spec.k_dim as usize).for_each(|head| turn(rope, back, head));
                }
                (k, &v[..])
            })
            .collect()
    }
}

/// Runs a verified graph on a checked batch. `weights` gives a weight's decoded elements; `inputs`
/// are the graph's; the result are its outputs.
///
/// # Panics
/// The graph or the batch break their rules.
pub fn interpret(
    model_graph: &ModelGraph,
    graph: &Graph,
    weights: &dyn Fn(WeightId) -> Vec<f32>,
    batch: &Batch<'_>,
    kv: &mut ReferenceKv,
    inputs: &[Matrix],
) -> Vec<Matrix> {
    let values = interpret_values(model_graph, graph, weights, batch, kv, inputs);
    let output = |id: &ValueId| values[id.0 as usize].clone().expect("a verified graph defines its outputs");
    graph.outputs.iter().map(output).collect()
}

/// Like [`interpret`], but gives every value by its id, to find the first one that differs.
///
/// # Panics
/// The graph or the batch break their rules.
pub fn interpret_values(
    model_graph: &ModelGraph,
    graph: &Graph,
    weights: &dyn Fn(WeightId) -> Vec<f32>,
    batch: &Batch<'_>,
    kv: &mut ReferenceKv,
    inputs: &[Matrix],
) -> Vec<Option<Matrix>> {
    assert_eq!(inputs.len(), graph.inputs.len(), "{}: inputs", graph.name);
    let mut values: Vec<Option<Matrix>> = vec![None; graph.values.len()];
    for (id, input) in graph.inputs.iter().zip(inputs) {
        values[id.0 as usize] = Some(input.clone());
    }
    let weight = |id: WeightId| -> Vec<f64> {
        let data = weights(id);
        let desc = model_graph.weight(id);
        assert_eq!(data.len(), (desc.rows() * desc.columns()) as usize, "elements of {}", desc.name);
        data.into_iter().map(f64::from).collect()
    };
    for node in &graph.nodes {
        let operands: Vec<&Matrix> = node
            .inputs
            .iter()
            .map(|id| values[id.0 as usize].as_ref().expect("a verified graph defines operands first"))
            .collect();
        let width = node.outputs.first().map_or(0, |&id| graph.value(id).width() as usize);
        let results = run(model_graph, &node.op, &operands, width, &weight, batch, kv);
        for (&id, result) in node.outputs.iter().zip(results) {
            let desc = graph.value(id);
            let rows = match desc.row_symbol() {
                Symbol::One => 1,
                Symbol::Tokens => batch.token_ids.len(),
                Symbol::Rows => batch.output_rows.len(),
                Symbol::Sequences => batch.sequences.len(),
            } * desc.dims[0].times as usize;
            let found = (result.rows().len(), result.width);
            assert_eq!(found, (rows, desc.width() as usize), "shape of {}", desc.name);
            values[id.0 as usize] = Some(result);
        }
    }
    values
}

fn run(
    model_graph: &ModelGraph,
    op: &Op,
    operands: &[&Matrix],
    width: usize,
    weight: &dyn Fn(WeightId) -> Vec<f64>,
    batch: &Batch<'_>,
    kv: &mut ReferenceKv,
) -> Vec<Matrix> {
    match op {
        Op::Embed { table, by } => {
            let elements = weight(*table);
            let row = |&index: &u32| elements[index as usize * width..][..width].to_vec();
            let indices = match by {
                EmbedBy::Token => batch.token_ids,
                EmbedBy::Position => batch.positions,
            };
            vec![Matrix::from_rows(width, indices.iter().map(row))]
        }
        Op::Norm(spec) => vec![norm(spec, operands[0], weight)],
        Op::Linear { parts } => vec![linear(model_graph, parts, operands[0], width, weight)],
        Op::Rope { rope, head_dim, .. } => vec![rotate(rope, *head_dim as usize, operands[0], batch)],
        Op::KvStore { layer, .. } => {
            kv.store(batch, *layer, operands[0], operands[1]);
            Vec::new()
        }
        Op::Attention(spec) => vec![attention(spec, operands[0], weight, batch, kv)],
        Op::Activate(activation) => vec![map(operands[0], |x| activate(*activation, x))],
        Op::GatedActivate(activation) => {
            vec![zip(operands[0], operands[1], |gate, up| activate(*activation, gate) * up)]
        }
        Op::Add => vec![zip(operands[0], operands[1], |a, b| a + b)],
        Op::Mul => vec![zip(operands[0], operands[1], |a, b| a * b)],
        Op::Scale { factor } => vec![map(operands[0], |x| x * f64::from(factor.get()))],
        Op::SoftCap { cap } => vec![map(operands[0], |x| soft_cap(f64::from(cap.get()), x))],
        Op::GatherRows => {
            let row = |&row: &u32| operands[0].row(row as usize).to_vec();
            vec![Matrix::from_rows(width, batch.output_rows.iter().map(row))]
        }
        Op::View { offset } => vec![operands[0].columns(*offset as usize, width)],
        Op::AddNorm(spec) => {
            let sum = zip(operands[0], operands[1], |a, b| a + b);
            let normed = norm(spec, &sum, weight);
            vec![sum, normed]
        }
        Op::RopeStore(spec) => vec![rope_store(spec, operands[0], batch, kv)],
    }
}

fn map(x: &Matrix, function: impl Fn(f64) -> f64) -> Matrix {
    Matrix { width: x.width, data: x.data.iter().map(|&x| function(x)).collect() }
}

fn zip(a: &Matrix, b: &Matrix, function: impl Fn(f64, f64) -> f64) -> Matrix {
    Matrix { width: a.width, data: a.data.iter().zip(&b.data).map(|(&a, &b)| function(a, b)).collect() }
}

fn norm(spec: &NormSpec, x: &Matrix, weight: &dyn Fn(WeightId) -> Vec<f64>) -> Matrix {
    let size = x.width / spec.groups as usize;
    let weights = spec.weight.map(weight);
    let biases = spec.bias.map(weight);
    let mut result = x.clone();
    // Values for a group serve all groups.
    let at =
        |values: &Option<Vec<f64>>, index: usize| values.as_ref().map(|values| values[index % values.len()]);
    for (number, group) in result.data.chunks_exact_mut(size).enumerate() {
        let mean = match spec.kind {
            NormKind::Rms => 0.0,
            NormKind::Layer => group.iter().sum::<f64>() / size as f64,
        };
        let square = group.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / size as f64;
        let root = (square + f64::from(spec.eps.get())).sqrt();
        for (index, x) in group.iter_mut().enumerate() {
            let index = number % spec.groups as usize * size + index;
            let weight = at(&weights, index).unwrap_or(1.0);
            let bias = at(&biases, index).unwrap_or(0.0);
            *x = (*x - mean) / root * weight + bias;
        }
    }
    result
}

fn linear(
    model_graph: &ModelGraph,
    parts: &[LinearPart],
    x: &Matrix,
    width: usize,
    weight: &dyn Fn(WeightId) -> Vec<f64>,
) -> Matrix {
    let mut result = Matrix::zeros(x.rows().len(), width);
    let mut first = 0;
    for part in parts {
        let matrix = weight(part.weight);
        let bias = part.bias.map(weight);
        let outputs = model_graph.weight(part.weight).rows() as usize;
        for (input, output) in x.rows().zip(result.data.chunks_exact_mut(width)) {
            for (index, coefficients) in matrix.chunks_exact(x.width).enumerate() {
                let dot: f64 = coefficients.iter().zip(input).map(|(w, x)| w * x).sum();
                output[first + index] = dot + bias.as_ref().map_or(0.0, |bias| bias[index]);
            }
        }
        first += outputs;
    }
    assert_eq!(first, width, "the parts fill the row");
    result
}

fn rotate(rope: &RopeSpec, head_dim: usize, x: &Matrix, batch: &Batch<'_>) -> Matrix {
    let mut result = x.clone();
    let magnitude = f64::from(rope.magnitude.get());
    let rotated = rope.rotated_dims() as usize;
    for (row, &position) in result.data.chunks_exact_mut(x.width).zip(batch.positions) {
        for head in row.chunks_exact_mut(head_dim) {
            turn(rope, f64::from(position), head);
            head[..rotated].iter_mut().for_each(|x| *x *= magnitude);
        }
    }
    result
}

/// Turns the pairs of a head by the angles of a position, without magnitude.
fn turn(rope: &RopeSpec, position: f64, head: &mut [f64]) {
    let half = rope.frequencies.len();
    for (pair, frequency) in rope.frequencies.iter().enumerate() {
        let (i, j) = match rope.pairs {
            RopePairs::Adjacent => (2 * pair, 2 * pair + 1),
            RopePairs::Halves => (pair, pair + half),
        };
        let (sin, cos) = (position * frequency.get()).sin_cos();
        let (a, b) = (head[i], head[j]);
        head[i] = a * cos - b * sin;
        head[j] = a * sin + b * cos;
    }
}

fn rope_store(spec: &RopeStoreSpec, row: &Matrix, batch: &Batch<'_>, kv: &mut ReferenceKv) -> Matrix {
    let k_dim = spec.k_dim as usize;
    let q_width = spec.heads as usize * k_dim;
    let k_width = spec.kv_heads as usize * k_dim;
    let q = rotate(&spec.rope, k_dim, &row.columns(0, q_width), batch);
    let k = rotate(&spec.rope, k_dim, &row.columns(q_width, k_width), batch);
    let v = row.columns(q_width + k_width, (spec.kv_heads * spec.v_dim) as usize);
    kv.store(batch, spec.layer, &k, &v);
    q
}

fn attention(
    spec: &AttentionSpec,
    q: &Matrix,
    weight: &dyn Fn(WeightId) -> Vec<f64>,
    batch: &Batch<'_>,
    kv: &ReferenceKv,
) -> Matrix {
    let [k_dim, v_dim] = [spec.k_dim, spec.v_dim].map(|dim| dim as usize);
    let sinks = spec.sinks.map(weight);
    let heads_per_kv = (spec.heads / spec.kv_heads) as usize;
    let width = spec.heads as usize * v_dim;
    let mut result = Matrix::zeros(q.rows().len(), width);
    for (sequence, view) in batch.sequences.iter().enumerate() {
        for row in view.rows.start as usize..view.rows.end as usize {
            let position = batch.positions[row];
            let seen = match spec.mask {
                Mask::Causal => 0..position + 1,
                Mask::Window(window) => (position + 1).saturating_sub(window)..position + 1,
                Mask::Bidirectional => 0..view.length(),
            };
            let cached = kv.read(batch, spec, sequence, seen);
            for head in 0..spec.heads as usize {
                let query = &q.row(row)[head * k_dim..][..k_dim];
                let kv_head = head / heads_per_kv;
                let scores: Vec<f64> = cached
                    .iter()
                    .map(|(k, _)| {
                        let key = &k[kv_head * k_dim..][..k_dim];
                        let dot: f64 = query.iter().zip(key).map(|(q, k)| q * k).sum();
                        let score = dot * f64::from(spec.scale.get());
                        spec.softcap.map_or(score, |cap| soft_cap(f64::from(cap.get()), score))
                    })
                    .collect();
                let probabilities = softmax(&scores, sinks.as_ref().map(|sinks| sinks[head]));
                let output = &mut result.data[row * width + head * v_dim..][..v_dim];
                for ((_, v), probability) in cached.iter().zip(probabilities) {
                    for (sum, x) in output.iter_mut().zip(&v[kv_head * v_dim..]) {
                        *sum += probability * x;
                    }
                }
            }
        }
    }
    result
}

/// Softmax with an optional extra logit that only takes part in the denominator.
fn softmax(scores: &[f64], sink: Option<f64>) -> Vec<f64> {
    let largest = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
    let total = weights.iter().sum::<f64>() + sink.map_or(0.0, |sink| (sink - largest).exp());
    weights.iter().map(|weight| weight / total).collect()
}

fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => gelu_tanh(x),
        Activation::GeluHalf if x.abs() >= 10.0 => x.max(0.0),
        Activation::GeluHalf => round_to_f16(gelu_tanh(round_to_f16(x))),
    }
}

fn gelu_tanh(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
    0.5 * x * (1.0 + inner.tanh())
}

fn soft_cap(cap: f64, x: f64) -> f64 {
    cap * (x / cap).tanh()
}

/// The nearest f16, ties to even, rounded once from f64.
fn round_to_f16(x: f64) -> f64 {
    const FRACTION_BITS: i32 = 10;
    const SMALLEST_EXPONENT: i32 = -14;
    const LARGEST: f64 = 65504.0;
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    // The biased exponent field of an f64; subnormal f64 values are far below f16's smallest.
    let exponent = ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    let unit = 2f64.powi(exponent.max(SMALLEST_EXPONENT) - FRACTION_BITS);
    let rounded = (x / unit).round_ties_even() * unit;
    if rounded.abs() > LARGEST { f64::INFINITY.copysign(x) } else { rounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_to_nearest_even_with_subnormals() {
        let cases = [
            (1.0 + 2f64.powi(-11), 1.0),
            (1.0 + 3.0 * 2f64.powi(-11), 1.0 + 2f64.powi(-9)),
            (65519.0, 65504.0),
            (65520.0, f64::INFINITY),
            (2f64.powi(-25), 0.0),
            (1.5 * 2f64.powi(-24), 2f64.powi(-23)),
        ];
        for (x, expected) in cases {
            assert_eq!(round_to_f16(x), expected, "{x}");
        }
    }

    #[test]
    fn softmax_with_a_sink_leaves_room_for_it() {
        let weights = softmax(&[0.0, 0.0], Some(0.0));
        assert!((weights[0] - 1.0 / 3.0).abs() < 1e-15 && weights[0] == weights[1]);
    }
}
