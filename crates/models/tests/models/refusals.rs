//! Files and overrides that are refused, with their messages.

use crate::common::{open, read};
use minfer_models::{MetadataOverride, Model, ModelOptions, RopeOverrides, RopeScalingKind};
use minfer_tensor::DType;
use minfer_testkit::synthetic::{Family, ModelFile, TensorData, Value};

/// Reads llama's synthetic model after a change.
#[track_caller]
fn refused(change: impl FnOnce(&mut ModelFile), wanted: &str) {
    refused_of(Family::Llama, change, wanted);
}

#[track_caller]
fn refused_of(family: Family, change: impl FnOnce(&mut ModelFile), wanted: &str) {
    let mut model = family.model();
    change(&mut model);
    let error = read(&model).expect_err("the change is to be refused");
    assert_eq!(error.to_string(), wanted);
}

/// Refuses a metadata value of llama's synthetic model.
#[track_caller]
fn bad_value(key: &str, value: impl Into<Value>, wanted: &str) {
    let full = format!("llama.{key}");
    refused(|model| model.set(&full, value), &format!("metadata key {full} is {wanted}"));
}

#[test]
fn unknown_architectures_list_the_known_ones() {
    let known: Vec<&str> = minfer_models::FAMILIES.iter().map(|family| family.architecture).collect();
    let known = known.join(", ");
    refused(
        |model| model.set("general.architecture", "qwen22"),
        &format!("architecture \"qwen22\" is not read by this build (did you mean qwen2?); it reads {known}"),
    );
    refused(
        |model| model.set("general.architecture", "rwkv"),
        &format!("architecture \"rwkv\" is not read by this build; it reads {known}"),
    );
    refused(
        |model| model.unset("general.architecture"),
        "metadata key general.architecture is missing: the name of a model family is needed",
    );
}

#[test]
fn missing_keys_are_named() {
    for (key, most) in [
        ("llama.block_count", 4096),
        ("llama.embedding_length", 1_048_576),
        ("llama.attention.head_count", 4096),
        ("llama.feed_forward_length", 16_777_216),
        ("llama.context_length", 1_073_741_824),
    ] {
        refused(
            |model| model.unset(key),
            &format!("metadata key {key} is missing: a number from 1 to {most} is needed"),
        );
    }
    let key = "llama.attention.layer_norm_rms_epsilon";
    refused(
        |model| model.unset(key),
        &format!("metadata key {key} is missing: a number above 0 and at most 1 is needed"),
    );
}

#[test]
fn useless_numbers_are_refused() {
    bad_value("block_count", 0, "0: a number from 1 to 4096 is needed");
    bad_value("block_count", 5000, "5000: a number from 1 to 4096 is needed");
    bad_value("attention.head_count", 0, "0: a number from 1 to 4096 is needed");
    bad_value("attention.key_length", 100_000, "100000: a number from 1 to 8192 is needed");
    bad_value(
        "attention.head_count",
        6,
        "6: a divisor of llama.embedding_length = 64, or llama.attention.key_length is needed",
    );
    bad_value("attention.head_count_kv", 3, "3: a divisor of llama.attention.head_count = 4 is needed");
    bad_value("attention.layer_norm_rms_epsilon", 0.0, "0: a number above 0 and at most 1 is needed");
    bad_value("attention.layer_norm_rms_epsilon", f32::NAN, "NaN: a number above 0 and at most 1 is needed");
    bad_value("rope.freq_base", -5.0, "-5: a number above 0 and at most 1000000000000000 is needed");
    bad_value("rope.freq_base", 1.0, "1: a number above 1 is needed");
    bad_value("rope.dimension_count", 7, "7: an even number of at most 16, the elements of a head is needed");
    bad_value(
        "rope.dimension_count",
        18,
        "18: an even number of at most 16, the elements of a head is needed",
    );
    bad_value("rope.scaling.type", "longrope", "\"longrope\": none, linear or yarn is needed");
    bad_value("rope.scaling.factor", -2.0, "-2: a number above 0 and at most 1000000 is needed");
    bad_value(
        "attention.head_count_kv",
        Value::I32s(vec![2, 2, 1, 2]),
        "[2, 2, 1, 2]: one number for all layers is needed",
    );
    let tokens = "tokenizer.ggml.tokens";
    refused(
        |model| model.set(tokens, Value::Texts(vec![])),
        &format!("metadata key {tokens} is a list of 0: a list of 1 to 16777216 tokens is needed"),
    );
}

#[test]
fn values_of_a_wrong_type_name_both_types() {
    let mut model = Family::Llama.model();
    model.set("llama.block_count", "four");
    let error = read(&model).unwrap_err().to_string();
    assert!(error.contains("llama.block_count") && error.contains("string"), "{error}");
}

#[test]
fn features_that_are_not_read_are_named() {
    for (key, value, wanted) in [
        (
            "expert_count",
            Value::U32(4),
            "a mixture of experts is not read by this build (metadata key llama.expert_count is 4)",
        ),
        (
            "attention.causal",
            Value::Bool(false),
            "bidirectional attention is not read by this build (metadata key llama.attention.causal is false)",
        ),
    ] {
        refused(|model| model.set(&format!("llama.{key}"), value), &format!("llama with {wanted}"));
    }
}

#[test]
fn features_that_are_off_do_no_harm() {
    let mut model = Family::Llama.model();
    model.set("llama.expert_count", 0);
    model.set("llama.attention.sliding_window", 0);
    model.set("llama.attention.causal", Value::Bool(true));
    model.set("llama.rope.scaling.type", "none");
    model.set("llama.attention.head_count_kv", Value::I32s(vec![2; 4]));
    let plain = read(&Family::Llama.model()).unwrap();
    assert_eq!(read(&model).unwrap().graph, plain.graph);
}

#[test]
fn missing_tensors_are_named_with_their_shape() {
    for (name, shape) in [
        ("token_embd.weight", "[269, 64]"),
        ("output_norm.weight", "[64]"),
        ("blk.0.attn_norm.weight", "[64]"),
        ("blk.1.attn_q.weight", "[64, 64]"),
        ("blk.3.attn_k.weight", "[32, 64]"),
        ("blk.2.ffn_down.weight", "[64, 96]"),
    ] {
        refused(
            |model| drop(model.remove(name)),
            &format!("tensor {name} is missing: the model needs it with shape {shape}"),
        );
    }
    refused_of(
        Family::Qwen2,
        |model| drop(model.remove("blk.0.attn_k.bias")),
        "tensor blk.0.attn_k.bias is missing: the model needs it with shape [32]",
    );
}

#[test]
fn misshapen_tensors_are_named_with_both_shapes() {
    refused(
        |model| model.tensor("blk.2.ffn_down.weight").dims = vec![96, 64],
        "tensor blk.2.ffn_down.weight has shape [96, 64]: the model needs [64, 96]",
    );
    refused(
        |model| model.tensor("blk.0.attn_norm.weight").dims = vec![1, 64],
        "tensor blk.0.attn_norm.weight has shape [1, 64]: the model needs [64]",
    );
    refused(
        |model| model.set("llama.embedding_length", 128),
        "tensor token_embd.weight has shape [269, 64]: the model needs [269, 128]",
    );
    // Optional tensors are checked too.
    refused(
        |model| model.tensors.push(TensorData::from_f32("blk.0.attn_q.bias", &[32], &[0.0; 32])),
        "tensor blk.0.attn_q.bias has shape [32]: the model needs [64]",
    );
}

#[test]
fn types_that_a_use_does_not_allow_are_named() {
    let halve = |model: &mut ModelFile| {
        let norm = model.tensor("output_norm.weight");
        norm.dtype = DType::F16;
        norm.bytes.truncate(2 * 64);
    };
    refused(halve, "tensor output_norm.weight is stored as F16: F32 is needed");
    refused(
        |model| model.tensor("output.weight").dtype = DType::I32,
        "tensor output.weight is stored as I32: a type of real numbers is needed",
    );
}

#[test]
fn useless_rope_factors_are_refused() {
    for bad in [0.0, -1.0, f32::INFINITY, f32::NAN] {
        let change = |model: &mut ModelFile| {
            let bytes = &mut model.tensor("rope_freqs.weight").bytes;
            bytes[12..16].copy_from_slice(&bad.to_le_bytes());
        };
        let wanted =
            format!("tensor rope_freqs.weight holds {bad} at 3: a positive, finite number is needed");
        refused_of(Family::Llama3, change, &wanted);
    }
}

#[test]
fn rope_overrides_that_cannot_be_meant_are_refused() {
    let none = RopeOverrides::default();
    for (rope, wanted) in [
        (
            RopeOverrides { scale: Some(0.0), ..none },
            "`rope.scale` is 0: a number above 0 and at most 1000000 is needed",
        ),
        (
            RopeOverrides { scale: Some(2.0), freq_scale: Some(0.5), ..none },
            "`rope.freq_scale` is 0.5: only one of it and `rope.scale` (now 2) is needed",
        ),
        (
            RopeOverrides { freq_base: Some(f64::NAN), ..none },
            "`rope.freq_base` is NaN: a number above 1 and at most 1000000000000000 is needed",
        ),
        (
            RopeOverrides { scaling: Some(RopeScalingKind::None), scale: Some(2.0), ..none },
            "`rope.scale` is 2: no factor with `rope.scaling` none, or `rope.scaling` linear or yarn is needed",
        ),
        (
            RopeOverrides { yarn_beta_fast: Some(16.0), ..none },
            "`rope.yarn_beta_fast` is 16: `rope.scaling` yarn with it (the model's rope scaling is none) is needed",
        ),
        (
            RopeOverrides { scaling: Some(RopeScalingKind::Yarn), ..none },
            "`rope.scaling` is yarn: a factor with it, `rope.scale` (the model has none) is needed",
        ),
        (
            RopeOverrides { scaling: Some(RopeScalingKind::Linear), ..none },
            "`rope.scaling` is linear: a factor with it, `rope.scale` (the model has none) is needed",
        ),
        (
            RopeOverrides {
                scaling: Some(RopeScalingKind::Yarn),
                scale: Some(2.0),
                yarn_original_context: Some(0),
                ..none
            },
            "`rope.yarn_original_context` is 0: a context length is needed",
        ),
        (
            RopeOverrides {
                scaling: Some(RopeScalingKind::Yarn),
                scale: Some(2.0),
                yarn_ext_factor: Some(1.5),
                ..none
            },
            "`rope.yarn_ext_factor` is 1.5: a number from 0 to 1, or below 0 for the usual one is needed",
        ),
    ] {
        let options = ModelOptions { rope, ..ModelOptions::default() };
        let error = Model::read(&open(&Family::Llama.model()), &options).unwrap_err();
        assert_eq!(error.to_string(), wanted);
    }
    let error = "ntk".parse::<RopeScalingKind>().unwrap_err().to_string();
    assert_eq!(error, "`rope.scaling` is \"ntk\": none, linear or yarn is needed");
}

#[test]
fn overrides_of_a_wrong_type_are_refused() {
    for (entry, wanted) in [
        ("llama.block_count=str:4", "`metadata` llama.block_count is str:4: int:VALUE is needed"),
        (
            "llama.block_count=int:-1",
            "metadata key llama.block_count is -1: an integer from 0 to 4294967295 is needed",
        ),
        (
            "tokenizer.ggml.tokens=str:a",
            "`metadata` tokenizer.ggml.tokens: lists of the tokenizer and chat templates cannot be overridden; `tokenizer_pre` \
             and `chat_template` replace the pre-tokenizer and the chat template",
        ),
        (
            "llama.rope.freq_base=int:0",
            "metadata key llama.rope.freq_base is 0: a number above 0 and at most 1000000000000000 is needed",
        ),
    ] {
        let metadata: Vec<MetadataOverride> = vec![entry.parse().unwrap()];
        let options = ModelOptions { metadata, ..ModelOptions::default() };
        let error = Model::read(&open(&Family::Llama.model()), &options).unwrap_err();
        assert_eq!(error.to_string(), wanted);
    }
}

#[test]
fn overrides_that_mean_nothing_are_refused_by_name() {
    let read = |family: Family, entries: &[&str]| {
        let metadata = entries.iter().map(|entry| entry.parse::<MetadataOverride>().unwrap()).collect();
        let options = ModelOptions { metadata, ..ModelOptions::default() };
        Model::read(&open(&family.model()), &options).map(|_| ()).map_err(|error| error.to_string())
    };
    for (entry, wanted) in [
        ("llama.blok_count=int:2", " (did you mean llama.block_count?)"),
        ("foo=int:1", ""),
        ("tokenizer.ggml.eos_tokn_id=int:1", " (did you mean tokenizer.ggml.eos_token_id?)"),
        ("qwen2.block_count=int:2", " (did you mean llama.block_count?)"),
        // Read only where the method is yarn.
        ("llama.rope.scaling.yarn_beta_fast=float:8", ""),
    ] {
        let key = entry.split('=').next().unwrap();
        let error = read(Family::Llama, &["llama.block_count=int:4", entry]).unwrap_err();
        let text = format!("`metadata` {key}: the file has no such key, and the model reads none{wanted}");
        assert_eq!(error, text);
    }
    // Not in the file but read, in the file but not read, and given twice.
    for entries in [
        &["llama.rope.scaling.attn_factor=float:1"][..],
        &["general.file_type=int:1"],
        &["tokenizer.ggml.eot_token_id=int:1"],
        &["llama.block_count=int:3", "llama.block_count=int:4"],
    ] {
        assert_eq!(read(Family::Llama, entries), Ok(()), "{entries:?}");
    }
    assert_eq!(read(Family::LlamaYarn, &["llama.rope.scaling.yarn_beta_fast=float:8"]), Ok(()));
}

#[test]
fn learned_positions_have_no_rotation_to_set() {
    let none = RopeOverrides::default();
    for (rope, flag) in [
        (RopeOverrides { scaling: Some(RopeScalingKind::None), ..none }, "`rope.scaling` is none"),
        (RopeOverrides { scale: Some(2.0), ..none }, "`rope.scale` is 2"),
        (RopeOverrides { freq_base: Some(5e5), ..none }, "`rope.freq_base` is 500000"),
        (RopeOverrides { freq_scale: Some(0.5), ..none }, "`rope.freq_scale` is 0.5"),
        (RopeOverrides { yarn_original_context: Some(64), ..none }, "`rope.yarn_original_context` is 64"),
    ] {
        let options = ModelOptions { rope, ..ModelOptions::default() };
        let error = Model::read(&open(&Family::Gpt2.model()), &options).unwrap_err();
        let wanted = "a model with rotated positions (this one's are learned) is needed";
        assert_eq!(error.to_string(), format!("{flag}: {wanted}"));
    }
    assert!(Model::read(&open(&Family::Gpt2.model()), &ModelOptions::default()).is_ok());
}
