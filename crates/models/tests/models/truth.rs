//! Log-probabilities of whole models against those recorded with llama.cpp.

use crate::common::open;
use minfer_graph::backend::WeightSource;
use minfer_graph::passes::{REWRITES, rewrite_all};
use minfer_graph::{
    Activation, Batch, BlockTable, KvFormat, KvGroupBatch, KvLayout, KvSpec, ModelGraph, Op, SequenceView,
    WeightId,
};
use minfer_models::{FileWeights, Model, ModelOptions};
use minfer_tensor::blocks::decode_row;
use minfer_testkit::interpreter::{Matrix, ReferenceKv, interpret};
use minfer_testkit::synthetic::{Family, Reference, reference};

fn decoded(model_graph: &ModelGraph, source: &FileWeights<'_>, id: WeightId) -> Vec<f32> {
    let weight = model_graph.weight(id);
    let mut values = vec![0.0; weight.rows() as usize * weight.columns() as usize];
    let mut bytes = vec![0; source.stored_bytes(id) as usize];
    source.read(id, 0, &mut bytes).expect("the file is in memory");
    decode_row(weight.dtype, &bytes, &mut values).expect("checked when the model was read");
    values
}

/// Logits at the recorded positions: the sequence in one batch, in blocks that follow each other.
fn logits(model_graph: &ModelGraph, source: &FileWeights<'_>, spec: &KvSpec, record: &Reference) -> Matrix {
    let count = record.tokens.len() as u32;
    let positions: Vec<u32> = (0..count).collect();
    let table: Vec<u32> = (0..count.div_ceil(spec.groups[0].block_tokens)).collect();
    let tables = [BlockTable::Aligned(&table)];
    let kv = vec![KvGroupBatch { cells: &positions, block_tables: &tables }; spec.groups.len()];
    let batch = Batch {
        token_ids: &record.tokens,
        positions: &positions,
        sequences: &[SequenceView { rows: 0..count, cached: 0 }],
        kv: &kv,
        output_rows: &record.positions,
    };
    let weights = |id| decoded(model_graph, source, id);
    let mut kv = ReferenceKv::exact(spec);
    let hidden = interpret(model_graph, &model_graph.body, &weights, &batch, &mut kv, &[]);
    let mut outputs = interpret(model_graph, &model_graph.head, &weights, &batch, &mut kv, &hidden);
    outputs.remove(0)
}

/// The largest difference of any token's log-probability from its record.
fn worst_difference(logits: &Matrix, record: &Reference) -> f64 {
    assert_eq!(logits.rows().len(), record.positions.len());
    let mut worst = 0.0_f64;
    for (row, wanted) in logits.rows().zip(&record.logprobs) {
        assert_eq!(row.len(), wanted.len());
        let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let log_sum = top + row.iter().map(|logit| (logit - top).exp()).sum::<f64>().ln();
        for (logit, &wanted) in row.iter().zip(wanted) {
            worst = worst.max((logit - log_sum - f64::from(wanted)).abs());
        }
    }
    worst
}

/// Whether a model graph has GELU without rounding, which then gets that of the records.
fn plain_gelu(model_graph: &mut ModelGraph) -> bool {
    let mut found = false;
    for node in &mut model_graph.body.nodes {
        if let Op::Activate(activation) = &mut node.op {
            found |= *activation == Activation::GeluTanh;
            *activation = Activation::GeluHalf;
        }
    }
    found
}

fn check(family: Family) {
    let file = open(&family.model());
    // The records were made with a context of 512 positions.
    let options = ModelOptions { n_ctx: Some(512), ..ModelOptions::default() };
    let mut model = Model::read(&file, &options).expect("synthetic models are read");
    let spec = model.kv_spec(KvFormat::F32, KvFormat::F32, KvLayout::LaneMajor, 64, 8).expect("a good spec");
    let record = reference(family);
    let plain = logits(&model.graph, &model.weights(&file), &spec, &record);
    let worst = worst_difference(&plain, &record);
    println!("{}: worst difference {worst:.2e}", family.name());
    assert!(worst <= family.tolerance(), "{}: log-probabilities differ by {worst}", family.name());

    if plain_gelu(&mut model.graph) {
        let halved = logits(&model.graph, &model.weights(&file), &spec, &record);
        let rounded = worst_difference(&halved, &record);
        println!("{}: worst difference {rounded:.2e} with GELU rounded to f16", family.name());
        assert!(rounded <= 5e-4, "{}: log-probabilities differ by {rounded}", family.name());
    }

    rewrite_all(&mut model.graph, &REWRITES).expect("models are rewritten");
    let fused = logits(&model.graph, &model.weights(&file), &spec, &record);
    assert!(worst_difference(&fused, &record) <= family.tolerance(), "{}: once rewritten", family.name());
}

#[test]
fn every_family_answers_as_recorded() {
    std::thread::scope(|scope| {
        for &family in Family::ALL {
            scope.spawn(move || check(family));
        }
    });
}
