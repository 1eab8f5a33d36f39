//! What is special about each family, checked on its graph.

use crate::common::{open, read};
use minfer_graph::{AttentionSpec, KvFormat, KvLayout, Mask, ModelGraph, NormSpec, Op, RopeSpec};
use minfer_models::{Model, ModelOptions, RopeOverrides};
use minfer_testkit::synthetic::{Family, ModelFile, TensorData, Value};

fn attentions(model_graph: &ModelGraph) -> Vec<AttentionSpec> {
    let attention = |op: &Op| if let Op::Attention(spec) = op { Some(spec.clone()) } else { None };
    model_graph.body.nodes.iter().filter_map(|node| attention(&node.op)).collect()
}

/// The rotations of a layer: of Q and of K, or none.
fn ropes(model_graph: &ModelGraph, layer: u32) -> Vec<RopeSpec> {
    let nodes = model_graph.body.nodes.iter();
    let own = nodes.filter(|node| node.name.starts_with(&format!("blk.{layer}.")));
    let rope = |op: &Op| if let Op::Rope { rope, .. } = op { Some(rope.clone()) } else { None };
    own.filter_map(|node| rope(&node.op)).collect()
}

fn norm(model_graph: &ModelGraph, name: &str) -> NormSpec {
    let node =
        model_graph.body.nodes.iter().find(|node| node.name == name).unwrap_or_else(|| panic!("no {name}"));
    match node.op {
        Op::Norm(spec) => spec,
        _ => panic!("{name} is no norm"),
    }
}

/// The second frequency tells the base: it is base^(-2 / dims).
fn base(rope: &RopeSpec) -> f64 {
    rope.frequencies[1].get().powf(-f64::from(rope.rotated_dims()) / 2.0).round()
}

fn masks(family: Family) -> Vec<Mask> {
    let model = read(&family.model()).unwrap();
    attentions(&model.graph).into_iter().map(|spec| spec.mask).collect()
}

#[test]
fn windows_are_those_of_the_family() {
    let (all, window) = (Mask::Causal, Mask::Window(64));
    assert_eq!(masks(Family::Gemma2), [window, all, window, all]);
    assert_eq!(masks(Family::Gemma3), [window, window, window, window, window, all, window]);
    assert_eq!(masks(Family::Gemma), [all; 4]);
    assert_eq!(masks(Family::Cohere2), [window, window, window, all]);
    assert_eq!(masks(Family::Exaone4), [all; 4]);
    assert_eq!(masks(Family::Exaone432b)[..5], [window, window, window, all, window]);
}

#[test]
fn a_window_holds_for_every_layer() {
    for family in [Family::Llama, Family::Qwen2, Family::Qwen3, Family::Phi3] {
        let masks_with = |positions: u32| {
            let mut file = family.model();
            file.set(&format!("{}.attention.sliding_window", family.architecture()), positions);
            let model = read(&file).unwrap();
            attentions(&model.graph).into_iter().map(|spec| spec.mask).collect::<Vec<_>>()
        };
        assert_eq!(masks_with(100), [Mask::Window(100); 4], "{}", family.name());
        assert_eq!(masks_with(0), [Mask::Causal; 4], "{}", family.name());
    }
}

#[test]
fn a_file_may_say_which_layers_have_the_window() {
    let masks = |pattern: Value| {
        let mut file = Family::Gemma2.model();
        file.set("gemma2.attention.sliding_window_pattern", pattern);
        let model = read(&file).unwrap();
        let windowed = |spec: AttentionSpec| spec.mask != Mask::Causal;
        attentions(&model.graph).into_iter().map(windowed).collect::<Vec<_>>()
    };
    assert_eq!(masks(Value::U32(4)), [true, true, true, false]);
    assert_eq!(masks(Value::U32(1)), [false; 4]);
    assert_eq!(masks(Value::Bools(vec![false, true, true, false])), [false, true, true, false]);
}

#[test]
fn layers_of_different_windows_are_groups_of_the_kv_cache() {
    let model = read(&Family::Gemma3.model()).unwrap();
    let kv = model.kv_spec(KvFormat::F16, KvFormat::F16, KvLayout::LaneMajor, 64, 10).unwrap();
    let layers: Vec<&[u32]> = kv.groups.iter().map(|group| &*group.layers).collect();
    assert_eq!(layers, [&[0, 1, 2, 3, 4, 6][..], &[5]]);
}

#[test]
fn windowed_layers_of_gemma3_turn_by_a_base_of_their_own() {
    let bases = |model: &Model| (0..7).map(|layer| base(&ropes(&model.graph, layer)[0])).collect::<Vec<_>>();
    let model = read(&Family::Gemma3.model()).unwrap();
    assert_eq!(bases(&model), [1e4, 1e4, 1e4, 1e4, 1e4, 1e6, 1e4]);
    // A stretch is one of the layers that see everything, a base in the file one of those that do
    // not.
    let mut file = Family::Gemma3.model();
    file.set("gemma3.rope.freq_base_swa", 500.0);
    let rope = RopeOverrides { scale: Some(2.0), ..RopeOverrides::default() };
    let model = Model::read(&open(&file), &ModelOptions { rope, ..ModelOptions::default() }).unwrap();
    let first = |layer: u32| ropes(&model.graph, layer)[0].frequencies[0].get();
    assert_eq!((first(0), first(5)), (1.0, 0.5));
    assert_eq!(base(&ropes(&model.graph, 0)[0]), 500.0);
}

#[test]
fn every_fourth_layer_of_smollm3_does_not_turn() {
    let model = read(&Family::Smollm3.model()).unwrap();
    let turned: Vec<usize> = (0..4).map(|layer| ropes(&model.graph, layer).len()).collect();
    assert_eq!(turned, [2, 2, 2, 0]);
}

#[test]
fn layers_that_see_everything_do_not_turn_beside_windows() {
    for (family, wanted) in [
        (Family::Cohere2, [2, 2, 2, 0]),
        (Family::Exaone432b, [2, 2, 2, 0]),
        (Family::Exaone4, [2; 4]),
        (Family::Gpt2, [0; 4]),
    ] {
        let model = read(&family.model()).unwrap();
        let turned: Vec<usize> = (0..4).map(|layer| ropes(&model.graph, layer).len()).collect();
        assert_eq!(turned, wanted, "{}", family.name());
    }
}

#[test]
fn the_largest_exaone4_has_a_window_though_its_file_does_not_say_so() {
    let mut file = Family::Exaone432b.model();
    file.unset("exaone4.attention.sliding_window");
    let model = read(&file).unwrap();
    let masks: Vec<Mask> = attentions(&model.graph)[..4].iter().map(|spec| spec.mask).collect();
    assert_eq!(masks, [Mask::Window(4096), Mask::Window(4096), Mask::Window(4096), Mask::Causal]);
}

#[test]
fn old_files_of_minicpm_have_the_factors_of_its_first_members() {
    let mut file = Family::Minicpm.model();
    ["embedding_scale", "residual_scale", "logit_scale"]
        .iter()
        .for_each(|key| file.unset(&format!("minicpm.{key}")));
    let scales = read(&file).unwrap().hyperparams.scales;
    // 1.4 / sqrt(layers), and logits divided by width / 256.
    assert_eq!((scales.embedding, scales.residual, scales.logits), (12.0, 0.7, 4.0));
}

/// Replaces the joint projection of every layer by three.
fn parted(mut file: ModelFile) -> ModelFile {
    for layer in 0..4 {
        for kind in ["weight", "bias"] {
            let joint = file.remove(&format!("blk.{layer}.attn_qkv.{kind}"));
            let (values, third) = (joint.values(), joint.dims[0] / 3);
            for (part, values) in ["q", "k", "v"].iter().zip(values.chunks(values.len() / 3)) {
                let dims = [&[third], &joint.dims[1..]].concat();
                let name = format!("blk.{layer}.attn_{part}.{kind}");
                file.tensors.push(TensorData::from_f32(&name, &dims, values));
            }
        }
    }
    file
}

#[test]
fn phi2_has_one_projection_or_three() {
    let file = parted(Family::Phi2.model());
    let model = read(&file).unwrap();
    assert!(model.unused.is_empty(), "{:?}", model.unused);
    let views = model.graph.body.nodes.iter().filter(|node| matches!(node.op, Op::View { .. }));
    assert_eq!(views.count(), 0);
    refused(
        Family::Phi2,
        |file| drop(file.remove("blk.2.attn_qkv.weight")),
        "tensor blk.2.attn_q.weight is missing: the model needs it with shape [64, 64]",
    );
}

#[test]
fn parts_side_by_side_read_one_norm_or_one_each() {
    let norms = |family: Family| -> Vec<String> {
        let model_graph = read(&family.model()).unwrap().graph;
        let first = model_graph.body.nodes.iter().filter(|node| node.name.starts_with("blk.0."));
        let norms = first.filter(|node| matches!(node.op, Op::Norm(_)));
        norms.map(|node| node.name.trim_start_matches("blk.0.").to_owned()).collect()
    };
    assert_eq!(norms(Family::Phi2), ["attn_norm"]);
    assert_eq!(norms(Family::Falcon), ["attn_norm"]);
    assert_eq!(norms(Family::Falcon40b), ["attn_norm_2", "attn_norm"]);
    assert_eq!(norms(Family::Stablelm), ["attn_norm", "ffn_norm"]);
    assert_eq!(norms(Family::StablelmParallel), ["attn_norm", "attn_q_norm", "attn_k_norm"]);
}

#[test]
fn granite_without_rotation_is_read() {
    let mut file = Family::Granite.model();
    file.set("granite.rope.scaling.finetuned", Value::Bool(false));
    let model = read(&file).unwrap();
    assert!((0..4).all(|layer| ropes(&model.graph, layer).is_empty()));
}

#[test]
fn caps_and_scales_are_the_files() {
    let model = read(&Family::Gemma2.model()).unwrap();
    let spec = attentions(&model.graph)[1].clone();
    assert_eq!((spec.softcap.map(|cap| cap.get()), spec.scale.get()), (Some(50.0), 1.0 / 32f32.sqrt()));
    let caps: Vec<f32> = model
        .graph
        .head
        .nodes
        .iter()
        .filter_map(|node| if let Op::SoftCap { cap } = node.op { Some(cap.get()) } else { None })
        .collect();
    assert_eq!(caps, [30.0]);
    let mut file = Family::Gemma2.model();
    file.set("gemma2.attn_logit_softcapping", 20.0);
    assert_eq!(attentions(&read(&file).unwrap().graph)[0].softcap.unwrap().get(), 20.0);

    let model = read(&Family::Granite.model()).unwrap();
    assert_eq!(attentions(&model.graph)[0].scale.get(), 1.0 / 16.0);
    let factors = |graph: &minfer_graph::Graph| -> Vec<f32> {
        let factor = |op: &Op| if let Op::Scale { factor } = op { Some(factor.get()) } else { None };
        graph.nodes.iter().filter_map(|node| factor(&node.op)).collect()
    };
    assert_eq!(factors(&model.graph.head), [1.0 / 8.0]);
    assert_eq!(factors(&model.graph.body), [&[12.0][..], &[0.22; 8]].concat());
}

#[test]
fn the_largest_gemmas_scale_scores_by_the_width_of_a_head() {
    for (family, layers) in [(Family::Gemma2, 46_u32), (Family::Gemma3, 62)] {
        let mut file = family.model();
        let sizes = file.tensors.clone();
        for layer in 0..layers {
            for tensor in sizes.iter().filter(|tensor| tensor.name.starts_with("blk.0.")) {
                let name = tensor.name.replace("blk.0.", &format!("blk.{layer}."));
                if !file.tensors.iter().any(|known| known.name == name) {
                    file.tensors.push(TensorData { name, ..tensor.clone() });
                }
            }
        }
        file.set(&format!("{}.block_count", family.architecture()), layers);
        // Width 64 over 4 heads, though heads have 32 elements.
        assert_eq!(attentions(&read(&file).unwrap().graph)[0].scale.get(), 0.25, "{}", family.name());
    }
}

#[test]
fn norms_of_q_and_k_are_of_heads_or_of_rows() {
    let groups = |family: Family| {
        let model_graph = read(&family.model()).unwrap().graph;
        ["blk.1.attn_q_norm", "blk.1.attn_k_norm"].map(|name| norm(&model_graph, name).groups)
    };
    assert_eq!(groups(Family::Qwen3), [4, 2]);
    assert_eq!(groups(Family::Gemma3), [4, 2]);
    assert_eq!(groups(Family::Olmo2), [1, 1]);
    assert_eq!(groups(Family::StablelmParallel), [4, 2]);
    assert_eq!(groups(Family::Exaone4), [4, 2]);
}

#[test]
fn joint_tensors_are_read_through_views() {
    let model_graph = read(&Family::Phi3.model()).unwrap().graph;
    let views: Vec<(&str, u32, u32)> = model_graph
        .body
        .nodes
        .iter()
        .filter_map(|node| match node.op {
            Op::View { offset } if node.name.starts_with("blk.2.") => {
                Some((&*node.name, offset, model_graph.body.value(node.outputs[0]).width()))
            }
            _ => None,
        })
        .collect();
    let wanted = [
        ("blk.2.attn_q", 0, 64),
        ("blk.2.attn_k", 64, 32),
        ("blk.2.attn_v", 96, 32),
        ("blk.2.ffn_gate", 0, 96),
        ("blk.2.ffn_up.half", 96, 96),
    ];
    assert_eq!(views, wanted);
}

#[test]
fn the_context_chooses_phi3s_factors() {
    let file = Family::Phi3Long.model();
    let read = |n_ctx| Model::read(&open(&file), &ModelOptions { n_ctx, ..ModelOptions::default() }).unwrap();
    let factors =
        |name: &str| -> Vec<f32> { file.tensors.iter().find(|tensor| tensor.name == name).unwrap().values() };
    let (long, short) = (factors("rope_factors_long.weight"), factors("rope_factors_short.weight"));
    let first = |model: &Model| ropes(&model.graph, 3)[0].frequencies[0].get();
    let divided = |factors: &[f32]| 1.0 / f64::from(factors[0]);
    let model = read(None);
    assert_eq!((model.context_length(), model.default_context()), (512, 64));
    assert_eq!(first(&model), divided(&short), "as many positions as before the stretch");
    assert_eq!(first(&read(Some(64))), divided(&short));
    assert_eq!(first(&read(Some(65))), divided(&long));
    for n_ctx in [None, Some(512)] {
        let model = read(n_ctx);
        assert_eq!(ropes(&model.graph, 0)[1].magnitude.get(), 1.19, "of both");
        assert_eq!(model.graph.builds, 2, "each graph is built once");
    }
}

/// Reads a family's synthetic model after a change.
#[track_caller]
fn refused(family: Family, change: impl FnOnce(&mut ModelFile), wanted: &str) {
    let mut file = family.model();
    change(&mut file);
    assert_eq!(read(&file).expect_err("the change is to be refused").to_string(), wanted);
}

#[test]
fn what_contradicts_itself_is_refused_by_name() {
    refused(
        Family::Phi3Long,
        |file| drop(file.remove("rope_factors_short.weight")),
        "tensor rope_factors_short.weight is missing: the model needs it with shape [8]",
    );
    refused(
        Family::Phi3Long,
        |file| drop(file.remove("rope_factors_long.weight")),
        "tensor rope_factors_long.weight is missing: the model needs it with shape [8]",
    );
    refused(
        Family::Phi3,
        |file| file.set("phi3.rope.scaling.type", "longrope"),
        "tensor rope_factors_long.weight is missing: the model needs it with shape [8]",
    );
    refused(
        Family::Qwen3,
        |file| file.set("qwen3.rope.scaling.type", "longrope"),
        "metadata key qwen3.rope.scaling.type is \"longrope\": none, linear or yarn is needed",
    );
    refused(
        Family::Gemma2,
        |file| file.set("gemma2.attention.sliding_window_pattern", Value::Bools(vec![true; 3])),
        "metadata key gemma2.attention.sliding_window_pattern is a list of 3: one truth value for each layer \
         (4) is needed",
    );
    refused(
        Family::Smollm3,
        |file| file.set("smollm3.attention.head_count", Value::U32s(vec![4, 4, 2, 4])),
        "metadata key smollm3.attention.head_count is [4, 4, 2, 4]: one number for all layers is needed",
    );
    refused(
        Family::Gemma2,
        |file| file.set("gemma2.attn_logit_softcapping", -50.0),
        "metadata key gemma2.attn_logit_softcapping is -50: a number above 0 and at most 1000000 is needed",
    );
    refused(
        Family::Granite,
        |file| file.set("granite.expert_count", 8),
        "granite with a mixture of experts is not read by this build (metadata key granite.expert_count is 8)",
    );
    refused(
        Family::Olmo2,
        |file| drop(file.remove("blk.1.attn_q_norm.weight")),
        "tensor blk.1.attn_q_norm.weight is missing: the model needs it with shape [64]",
    );
    refused(
        Family::Glm4,
        |file| file.set("glm4.attention.clamp_kqv", 8.0),
        "glm4 with clamped projections is not read by this build (metadata key glm4.attention.clamp_kqv is 8)",
    );
}

#[test]
fn longrope_is_what_phi3s_factors_do() {
    let mut file = Family::Phi3Long.model();
    file.set("phi3.rope.scaling.type", "longrope");
    assert_eq!(read(&file).unwrap().graph, read(&Family::Phi3Long.model()).unwrap().graph);
}
