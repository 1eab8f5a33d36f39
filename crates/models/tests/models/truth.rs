//! Whole models against distributions that another engine computed from the same files.

use crate::common::open;
use minfer_graph::backend::WeightSource;
use minfer_graph::passes::{REWRITES, rewrite_all};
use minfer_graph::{Batch, KvFormat, KvGroupBatch, KvLayout, KvSpec, Program, SequenceView, WeightId};
use minfer_models::{FileWeights, Model, ModelOptions};
use minfer_tensor::blocks::decode_row;
use minfer_testkit::interpreter::{Matrix, ReferenceKv, interpret};
use minfer_testkit::synthetic::{Family, Reference, reference};

/// Largest allowed difference of a log-probability, in nats. Records have five decimals and come from f32 arithmetic; this
/// program runs in f64.
fn tolerance(family: Family) -> f64 {
    match family {
        // Arguments of GELU near the middle of two f16 are rounded to one or the other.
        Family::Gemma | Family::Gemma2 | Family::Gemma3 => 2e-3,
        _ => 3e-5,
    }
}

fn decoded(program: &Program, source: &FileWeights<'_>, id: WeightId) -> Vec<f32> {
    let weight = program.weight(id);
    let mut values = vec![0.0; weight.rows() as usize * weight.columns() as usize];
    decode_row(weight.dtype, source.bytes(id), &mut values).expect("checked when the model was read");
    values
}

/// Logits at the recorded positions: the sequence in one batch, in blocks that follow each other.
fn logits(program: &Program, source: &FileWeights<'_>, spec: &KvSpec, record: &Reference) -> Matrix {
    let count = record.tokens.len() as u32;
    let positions: Vec<u32> = (0..count).collect();
    let table: Vec<u32> = (0..count.div_ceil(spec.groups[0].block_tokens)).collect();
    let tables: [&[u32]; 1] = [&table];
    let kv = vec![KvGroupBatch { cells: &positions, block_tables: &tables }; spec.groups.len()];
    let batch = Batch {
        token_ids: &record.tokens,
        positions: &positions,
        sequences: &[SequenceView { rows: 0..count, cached: 0 }],
        kv: &kv,
        output_rows: &record.positions,
    };
    let weights = |id| decoded(program, source, id);
    let mut kv = ReferenceKv::exact(spec);
    let hidden = interpret(program, &program.body, &weights, &batch, &mut kv, &[]);
    let mut outputs = interpret(program, &program.head, &weights, &batch, &mut kv, &hidden);
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

#[track_caller]
fn check(family: Family) {
    let file = open(&family.model());
    let mut model = Model::read(&file, &ModelOptions::default()).expect("synthetic models are read");
    let spec = model.kv_spec(KvFormat::F32, KvFormat::F32, KvLayout::LaneMajor, 64, 8).expect("a good spec");
    let record = reference(family);
    let plain = logits(&model.program, &model.weights(&file), &spec, &record);
    let worst = worst_difference(&plain, &record);
    println!("{}: worst difference {worst:.2e}", family.name());
    assert!(worst <= tolerance(family), "{}: log-probabilities differ by {worst}", family.name());

    rewrite_all(&mut model.program, &REWRITES).expect("models are rewritten");
    let fused = logits(&model.program, &model.weights(&file), &spec, &record);
    assert!(worst_difference(&fused, &record) <= tolerance(family), "{}: once rewritten", family.name());
}

#[test]
fn llama() {
    check(Family::Llama);
}

#[test]
fn llama3() {
    check(Family::Llama3);
}

#[test]
fn llama_yarn() {
    check(Family::LlamaYarn);
}

#[test]
fn llama_linear() {
    check(Family::LlamaLinear);
}

#[test]
fn llama_odd() {
    check(Family::LlamaOdd);
}

#[test]
fn qwen2() {
    check(Family::Qwen2);
}

#[test]
fn qwen3() {
    check(Family::Qwen3);
}

#[test]
fn gemma() {
    check(Family::Gemma);
}

#[test]
fn gemma2() {
    check(Family::Gemma2);
}

#[test]
fn gemma3() {
    check(Family::Gemma3);
}

#[test]
fn phi3() {
    check(Family::Phi3);
}

#[test]
fn phi3_long() {
    check(Family::Phi3Long);
}

#[test]
fn granite() {
    check(Family::Granite);
}

#[test]
fn olmo2() {
    check(Family::Olmo2);
}

#[test]
fn smollm3() {
    check(Family::Smollm3);
}

#[test]
fn glm4() {
    check(Family::Glm4);
}
