//! Hyperparameters and overrides of sound files.

use crate::common::{open, read};
use minfer_graph::backend::WeightSource;
use minfer_graph::{KvFormat, KvLayout, KvSpecError, LinearPart, ModelGraph, Op, RopePairs, WeightId};
use minfer_models::{
    MetadataOverride, Model, ModelOptions, RopeOverrides, RopeScaling, RopeScalingKind, Yarn,
};
use minfer_tensor::DType;
use minfer_testkit::synthetic::{Family, TensorData, Value, quantised};

/// One line for each node: name, operation, operands, weights.
fn listing(model_graph: &ModelGraph, prefix: &str) -> Vec<String> {
    let names = |ids: Vec<WeightId>| {
        ids.into_iter().map(|id| model_graph.weight(id).name.as_str()).collect::<Vec<_>>().join(" ")
    };
    let body = &model_graph.body;
    let nodes = body.nodes.iter().filter(|node| node.name.starts_with(prefix));
    nodes
        .map(|node| {
            let inputs: Vec<&str> = node.inputs.iter().map(|&id| body.value(id).name.as_str()).collect();
            let line = format!(
                "{}: {}({}) {}",
                node.name,
                node.op.name(),
                inputs.join(", "),
                names(node.op.weights())
            );
            line.trim_end().to_owned()
        })
        .collect()
}

#[test]
fn one_layer_of_qwen2() {
    let model = read(&Family::Qwen2.model()).unwrap();
    let wanted = [
        "blk.1.attn_norm: norm(blk.0.ffn_down.add) blk.1.attn_norm.weight",
        "blk.1.attn_q: linear(blk.1.attn_norm) blk.1.attn_q.weight blk.1.attn_q.bias",
        "blk.1.attn_k: linear(blk.1.attn_norm) blk.1.attn_k.weight blk.1.attn_k.bias",
        "blk.1.attn_v: linear(blk.1.attn_norm) blk.1.attn_v.weight blk.1.attn_v.bias",
        "blk.1.attn_q.rope: rope(blk.1.attn_q)",
        "blk.1.attn_k.rope: rope(blk.1.attn_k)",
        "blk.1.kv_store: kv_store(blk.1.attn_k.rope, blk.1.attn_v)",
        "blk.1.attention: attention(blk.1.attn_q.rope)",
        "blk.1.attn_output: linear(blk.1.attention) blk.1.attn_output.weight",
        "blk.1.attn_output.add: add(blk.0.ffn_down.add, blk.1.attn_output)",
        "blk.1.ffn_norm: norm(blk.1.attn_output.add) blk.1.ffn_norm.weight",
        "blk.1.ffn_gate: linear(blk.1.ffn_norm) blk.1.ffn_gate.weight",
        "blk.1.ffn_up: linear(blk.1.ffn_norm) blk.1.ffn_up.weight",
        "blk.1.ffn_gate.silu: gated_activate(blk.1.ffn_gate, blk.1.ffn_up)",
        "blk.1.ffn_down: linear(blk.1.ffn_gate.silu) blk.1.ffn_down.weight",
        "blk.1.ffn_down.add: add(blk.1.attn_output.add, blk.1.ffn_down)",
    ];
    assert_eq!(listing(&model.graph, "blk.1."), wanted);
    assert_eq!(model.graph.body.nodes.len(), 1 + 4 * wanted.len());
    assert_eq!(model.graph.head.nodes.len(), 3);
}

#[test]
fn every_family_gives_a_program_that_verifies() {
    for &family in Family::ALL {
        let model = read(&family.model()).unwrap();
        assert_eq!(model.graph.verify(), Ok(()), "{}", family.name());
        assert!(model.unused.is_empty(), "{}: {:?}", family.name(), model.unused);
        assert_eq!(model.name, format!("synthetic {}", family.name()));
        assert_eq!(model.context_length(), 512);
    }
}

#[test]
fn numbers_are_read() {
    let model = read(&Family::LlamaOdd.model()).unwrap();
    let numbers = &model.hyperparams;
    assert_eq!((numbers.n_layers, numbers.hidden_size, numbers.heads, numbers.kv_heads), (4, 72, 3, 1));
    assert_eq!((numbers.k_dim, numbers.v_dim, numbers.feed_forward, numbers.vocab), (24, 24, 80, 269));
    assert_eq!((numbers.norm_eps, numbers.rope.dims, numbers.rope.base), (1e-5, 24, 10_000.0));
    assert_eq!(model.family.architecture, "llama");
    let elements: usize = Family::LlamaOdd.model().tensors.iter().map(|tensor| tensor.values().len()).sum();
    assert_eq!(model.parameters, elements as u64);
}

#[test]
fn families_pair_elements_in_their_own_way() {
    let pairs = |family: Family| read(&family.model()).unwrap().hyperparams.rope.pairs;
    assert_eq!(pairs(Family::Llama), RopePairs::Adjacent);
    assert_eq!(pairs(Family::Qwen2), RopePairs::Halves);
}

#[test]
fn rope_scaling_is_read() {
    let scaling = |family: Family| read(&family.model()).unwrap().hyperparams.rope.scaling;
    assert_eq!(scaling(Family::Llama), RopeScaling::None);
    assert_eq!(scaling(Family::LlamaLinear), RopeScaling::Linear { factor: 2.0 });
    assert_eq!(scaling(Family::LlamaYarn), RopeScaling::Yarn(Yarn { factor: 4.0, ..Yarn::usual(64) }));
    let mut old = Family::Llama.model();
    old.set("llama.rope.scale_linear", 8.0);
    assert_eq!(read(&old).unwrap().hyperparams.rope.scaling, RopeScaling::Linear { factor: 8.0 });
}

#[test]
fn every_yarn_key_is_read() {
    let mut file = Family::LlamaYarn.model();
    file.set("llama.rope.scaling.yarn_ext_factor", 0.5);
    file.set("llama.rope.scaling.yarn_beta_fast", 16.0);
    file.set("llama.rope.scaling.yarn_beta_slow", 2.0);
    file.set("llama.rope.scaling.yarn_attn_factor", 1.5);
    file.set("llama.rope.scaling.attn_factor", 0.5);
    let rope = read(&file).unwrap().hyperparams.rope;
    let wanted = Yarn { factor: 4.0, original_context: 64, ext_factor: 0.5, beta_fast: 16.0, beta_slow: 2.0 };
    assert_eq!(rope.scaling, RopeScaling::Yarn(wanted));
    assert_eq!(rope.magnitude, 0.75);

    // The context of training stands in for an absent original one, and a negative factor for the
    // usual one.
    file.unset("llama.rope.scaling.original_context_length");
    file.set("llama.rope.scaling.yarn_ext_factor", -1.0);
    let rope = read(&file).unwrap().hyperparams.rope;
    assert_eq!(rope.scaling, RopeScaling::Yarn(Yarn { original_context: 512, ext_factor: 1.0, ..wanted }));

    // An override replaces YaRN's own factor and leaves the file's other one.
    let rope = RopeOverrides { yarn_attn_factor: Some(3.0), ..RopeOverrides::default() };
    let options = ModelOptions { rope, ..ModelOptions::default() };
    let model = Model::read(&open(&file), &options).unwrap();
    assert_eq!(model.hyperparams.rope.magnitude, 1.5);
}

#[test]
fn rope_factors_go_into_the_graph_and_not_into_its_weights() {
    let model = read(&Family::Llama3.model()).unwrap();
    let factors = model.hyperparams.rope.factors.clone().unwrap();
    assert_eq!(*factors, *Family::Llama3.model().tensor("rope_freqs.weight").values());
    assert!(model.graph.weights.iter().all(|weight| weight.name != "rope_freqs.weight"));
    let first = model.graph.body.nodes.iter().find_map(|node| match &node.op {
        Op::Rope { rope, .. } => Some(rope.frequencies[0].get()),
        _ => None,
    });
    assert_eq!(first, Some(1.0 / f64::from(factors[0])));
}

#[test]
fn rope_overrides_take_the_place_of_the_files() {
    let none = RopeOverrides::default();
    let read = |family: Family, rope: RopeOverrides| {
        let options = ModelOptions { rope, ..ModelOptions::default() };
        Model::read(&open(&family.model()), &options).unwrap().hyperparams.rope
    };
    let scale = RopeOverrides { scale: Some(3.0), ..none };
    assert_eq!(read(Family::Llama, scale).scaling, RopeScaling::Linear { factor: 3.0 });
    assert_eq!(
        read(Family::LlamaYarn, scale).scaling,
        RopeScaling::Yarn(Yarn { factor: 3.0, ..Yarn::usual(64) })
    );
    let freq_scale = RopeOverrides { freq_scale: Some(0.25), ..none };
    assert_eq!(read(Family::LlamaLinear, freq_scale).scaling, RopeScaling::Linear { factor: 4.0 });
    let off = RopeOverrides { scaling: Some(RopeScalingKind::None), ..none };
    assert_eq!(read(Family::LlamaYarn, off).scaling, RopeScaling::None);
    let linear = RopeOverrides { scaling: Some(RopeScalingKind::Linear), ..none };
    assert_eq!(read(Family::LlamaYarn, linear).scaling, RopeScaling::Linear { factor: 4.0 });
    let yarn = RopeOverrides {
        scaling: Some(RopeScalingKind::Yarn),
        scale: Some(2.0),
        freq_base: Some(5e5),
        yarn_original_context: Some(128),
        yarn_ext_factor: Some(0.5),
        yarn_attn_factor: Some(1.5),
        yarn_beta_fast: Some(16.0),
        yarn_beta_slow: Some(2.0),
        ..none
    };
    let rope = read(Family::Llama, yarn);
    let wanted =
        Yarn { factor: 2.0, original_context: 128, ext_factor: 0.5, beta_fast: 16.0, beta_slow: 2.0 };
    assert_eq!(rope.scaling, RopeScaling::Yarn(wanted));
    assert_eq!((rope.base, rope.magnitude), (5e5, 1.5));
}

#[test]
fn metadata_overrides_come_before_everything() {
    let read = |entries: &[&str]| {
        let metadata: Vec<MetadataOverride> = entries.iter().map(|entry| entry.parse().unwrap()).collect();
        let options = ModelOptions { metadata, ..ModelOptions::default() };
        Model::read(&open(&Family::Llama.model()), &options).unwrap()
    };
    let model =
        read(&["llama.context_length=int:7", "llama.context_length=int:64", "general.name=str:other"]);
    assert_eq!((model.context_length(), model.name.as_str()), (64, "other"));
    let model = read(&["llama.rope.freq_base=float:500", "llama.block_count=int:2"]);
    assert_eq!((model.hyperparams.rope.base, model.hyperparams.n_layers), (500.0, 2));
    assert_eq!(model.unused.len(), 2 * 9, "the other layers' tensors are not used");
}

#[test]
fn an_absent_output_is_tied_to_the_embedding() {
    let mut file = Family::Llama.model();
    file.remove("output.weight");
    let model = read(&file).unwrap();
    assert_eq!(model.graph.verify(), Ok(()));
    let linear = model.graph.head.nodes.iter().find_map(|node| match &node.op {
        Op::Linear { parts } => Some(parts[0].weight),
        _ => None,
    });
    assert_eq!(model.graph.weight(linear.unwrap()).name, "token_embd.weight");
}

#[test]
fn optional_biases_are_used_and_unknown_tensors_listed() {
    let mut file = Family::Llama.model();
    file.tensors.push(TensorData::from_f32("blk.0.attn_output.bias", &[64], &[0.5; 64]));
    file.tensors.push(TensorData::from_f32("blk.0.attn_sinks.weight", &[4], &[0.5; 4]));
    let model = read(&file).unwrap();
    assert_eq!(model.unused, ["blk.0.attn_sinks.weight"]);
    let biases: Vec<&str> = model
        .graph
        .body
        .nodes
        .iter()
        .filter_map(|node| match &node.op {
            Op::Linear { parts } => parts.iter().find_map(|&LinearPart { bias, .. }| bias),
            _ => None,
        })
        .map(|id| model.graph.weight(id).name.as_str())
        .collect();
    assert_eq!(biases, ["blk.0.attn_output.bias"]);
}

#[test]
fn head_dims_may_differ_from_width_by_heads() {
    let mut file = Family::Llama.model();
    file.set("llama.attention.key_length", 8);
    file.set("llama.attention.value_length", 12);
    file.set("llama.rope.dimension_count", 6);
    for layer in 0..4 {
        for (name, rows, columns) in
            [("attn_q", 32, 64), ("attn_k", 16, 64), ("attn_v", 24, 64), ("attn_output", 64, 48)]
        {
            let values = vec![0.0; rows * columns];
            let name = format!("blk.{layer}.{name}.weight");
            *file.tensor(&name) = TensorData::from_f32(&name, &[rows, columns], &values);
        }
    }
    let model = read(&file).unwrap();
    assert_eq!(model.graph.verify(), Ok(()));
    let kv = model.kv_spec(KvFormat::F16, KvFormat::F32, KvLayout::LaneMajor, 64, 10).unwrap();
    assert_eq!(kv.bytes_per_token(), 4 * 2 * (8 * 2 + 12 * 4));
}

#[test]
fn the_kv_cache_is_one_group_of_all_layers() {
    let model = read(&Family::Llama.model()).unwrap();
    let kv = model.kv_spec(KvFormat::BF16, KvFormat::F16, KvLayout::LaneMajor, 32, 100).unwrap();
    assert_eq!(kv.max_blocks, [100]);
    let group = &kv.groups[0];
    assert_eq!((&*group.layers, group.kv_heads, group.k_dim, group.v_dim), (&[0, 1, 2, 3][..], 2, 16, 16));
    assert_eq!((group.k_format, group.v_format, group.block_tokens), (KvFormat::BF16, KvFormat::F16, 32));
    let refused = model.kv_spec(KvFormat::F32, KvFormat::F32, KvLayout::LaneMajor, 48, 100);
    assert_eq!(refused, Err(KvSpecError::BlockTokens(48)));
}

#[test]
fn weights_are_the_files_bytes() {
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_real()) {
        let mut source = quantised(dtype);
        let file = open(&source);
        let model = Model::read(&file, &ModelOptions::default()).unwrap();
        assert_eq!(model.graph.verify(), Ok(()));
        let weights = model.weights(&file);
        for (index, weight) in model.graph.weights.iter().enumerate() {
            let stored = source.tensor(&weight.name);
            let id = WeightId(index as u32);
            assert_eq!(weight.dtype, stored.dtype);
            assert_eq!(weights.stored_bytes(id), stored.bytes.len() as u64, "{}", weight.name);
            for cut in [0, 1, stored.bytes.len() / 2, stored.bytes.len()] {
                let (mut start, mut end) = (vec![0; cut], vec![0; stored.bytes.len() - cut]);
                weights.read(id, 0, &mut start).unwrap();
                weights.read(id, cut as u64, &mut end).unwrap();
                assert_eq!([start, end].concat(), stored.bytes, "{} in parts", weight.name);
            }
        }
        let total: usize = source.tensors.iter().map(|tensor| tensor.bytes.len()).sum();
        assert_eq!(weights.total_bytes(), total as u64);
    }
}

#[test]
fn the_vocabulary_is_known_without_a_tokenizer() {
    let mut file = Family::Llama.model();
    file.unset("tokenizer.ggml.tokens");
    assert_eq!(read(&file).unwrap().hyperparams.vocab, 269);
    file.set("llama.vocab_size", Value::U32(0));
    assert!(read(&file).is_err());
}
