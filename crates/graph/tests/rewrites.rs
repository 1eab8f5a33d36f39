//! Rewrites: how often each applies, and that results stay the same.

mod common;

use common::{Family, GEMMA3, LLAMA, PARALLEL, QWEN2, choice, linear, rope, weights};
use minfer_graph::backend::Support;
use minfer_graph::passes::{self, RewriteError, RewriteReport};
use minfer_graph::{
    Batch, BlockTable, Graph, KvGroupBatch, KvSpec, ModelGraph, ModelGraphBuilder, Op, SequenceView, Symbol,
    TensorDesc,
};
use minfer_tensor::DType;
use minfer_testkit::interpreter::{Matrix, ReferenceKv, interpret};

fn rewritten(model_graph: &ModelGraph, off: &[&str]) -> (ModelGraph, RewriteReport) {
    let off: Vec<String> = off.iter().map(ToString::to_string).collect();
    let mut model_graph = model_graph.clone();
    let report = passes::rewrite_all(&mut model_graph, &passes::enabled(&off).unwrap()).unwrap();
    model_graph.verify().unwrap();
    (model_graph, report)
}

fn counts(report: &RewriteReport) -> Vec<usize> {
    passes::names().into_iter().map(|name| report.count(name)).collect()
}

fn ops(graph: &Graph, name: &str) -> usize {
    graph.nodes.iter().filter(|node| node.op.name() == name).count()
}

/// Hidden rows and logits of two sequences fed in two steps, the second with more of the first and
/// a new one.
fn run(model_graph: &ModelGraph) -> Vec<Matrix> {
    let spec = KvSpec::for_model(model_graph, choice());
    let mut kv = ReferenceKv::exact(&spec);
    let weights = weights(model_graph);
    let mut results = Vec::new();
    let steps = [
        (vec![3, 14, 15, 9, 26, 5], vec![(0..6, 0, vec![2])]),
        (vec![1, 7, 8, 30], vec![(0..1, 6, vec![2]), (1..4, 0, vec![5])]),
    ];
    for (tokens, sequences) in steps {
        let views: Vec<SequenceView> = sequences
            .iter()
            .map(|(rows, cached, _)| SequenceView { rows: rows.clone(), cached: *cached })
            .collect();
        let tables: Vec<_> = sequences.iter().map(|(_, _, table)| BlockTable::Aligned(table)).collect();
        let mut positions = Vec::new();
        let mut cells = Vec::new();
        for (view, (_, _, table)) in views.iter().zip(&sequences) {
            for position in view.cached..view.length() {
                positions.push(position);
                cells.push(table[0] * 16 + position);
            }
        }
        let groups = vec![KvGroupBatch { cells: &cells, block_tables: &tables }; spec.groups.len()];
        let batch = Batch {
            token_ids: &tokens,
            positions: &positions,
            sequences: &views,
            kv: &groups,
            output_rows: &[0, tokens.len() as u32 - 1],
        };
        let hidden = interpret(model_graph, &model_graph.body, &weights, &batch, &mut kv, &[]);
        let logits = interpret(model_graph, &model_graph.head, &weights, &batch, &mut kv, &hidden);
        results.extend(hidden.into_iter().chain(logits));
    }
    results
}

/// The order of additions never changes, so results are equal, not only close.
fn check_meaning(model_graph: &ModelGraph) {
    let plain = run(model_graph);
    assert!(plain.iter().all(|matrix| matrix.data.iter().all(|x| x.is_finite())));
    assert!(plain.last().unwrap().data.iter().any(|x| x.abs() > 1e-3), "the model computes something");
    let names = passes::names();
    let alone = names.iter().map(|name| names.iter().filter(|other| *other != name).copied().collect());
    let without = names.iter().map(|name| vec![*name]);
    let offs: Vec<Vec<&str>> = std::iter::once(Vec::new()).chain(without).chain(alone).collect();
    for off in offs {
        assert_eq!(run(&rewritten(model_graph, &off).0), plain, "without {off:?}");
    }
}

#[test]
fn a_llama_layer_of_sixteen_nodes_becomes_ten_and_two_views() {
    let model_graph = LLAMA.model_graph();
    let (fused, report) = rewritten(&model_graph, &[]);
    // merge_linears, add_norm, rope_store, fold_view, dead_view; two layers, the last sum has no
    // norm after it.
    assert_eq!(counts(&report), [4, 3, 2, 0, 0]);
    let layer: Vec<(&str, &str)> = fused
        .body
        .nodes
        .iter()
        .filter(|node| node.name.starts_with("blk.1."))
        .map(|node| (node.op.name(), node.name.strip_prefix("blk.1.").unwrap()))
        .collect();
    assert_eq!(
        layer,
        [
            ("add_norm", "attn_norm"),
            ("linear", "attn_q+attn_k+attn_v"),
            ("rope_store", "rope_store"),
            ("attention", "attention"),
            ("linear", "attn_output"),
            ("add_norm", "ffn_norm"),
            ("linear", "ffn_gate+ffn_up"),
            ("view", "ffn_gate"),
            ("view", "ffn_up"),
            ("gated_activate", "ffn_gate.silu"),
            ("linear", "ffn_down"),
            ("add", "ffn_down.add"),
        ]
    );
    assert_eq!(model_graph.body.nodes.len(), 1 + 2 * 16);
    assert_eq!(fused.body.nodes.len(), 1 + 11 + 12);
    let named = fused.body.nodes.iter().flat_map(|node| &node.outputs).count();
    assert_eq!(named, fused.body.values.len(), "no value is left over");
    check_meaning(&model_graph);
}

#[test]
fn biases_and_mixed_types_travel_in_the_parts() {
    let model_graph = QWEN2.model_graph();
    let (fused, report) = rewritten(&model_graph, &[]);
    assert_eq!(counts(&report), [4, 3, 2, 0, 0]);
    let joint = fused.body.nodes.iter().find(|node| node.name == "blk.0.attn_q+attn_k+attn_v").unwrap();
    let Op::Linear { parts } = &joint.op else { panic!("{joint:?}") };
    let types: Vec<DType> = parts.iter().map(|part| fused.weight(part.weight).dtype).collect();
    assert_eq!(types, QWEN2.types);
    assert!(parts.iter().all(|part| part.bias.is_some()));
    check_meaning(&model_graph);
}

#[test]
fn norms_per_head_keep_rotation_and_store_apart() {
    let model_graph = GEMMA3.model_graph();
    let (fused, report) = rewritten(&model_graph, &[]);
    assert_eq!(counts(&report), [4, 3, 0, 0, 0]);
    assert_eq!((ops(&fused.body, "rope"), ops(&fused.body, "kv_store")), (4, 2));
    check_meaning(&model_graph);
}

#[test]
fn a_parallel_block_stores_from_a_view_of_its_joint_row() {
    let model_graph = PARALLEL.model_graph();
    let (fused, report) = rewritten(&model_graph, &[]);
    // One joint node of q, k, v, gate and up for each layer; one norm follows a sum.
    assert_eq!(counts(&report), [2, 1, 2, 0, 0]);
    let view = fused.body.nodes.iter().find(|node| node.name == "blk.0.qkv").unwrap();
    assert_eq!(view.op, Op::View { offset: 0 });
    check_meaning(&model_graph);
}

#[test]
fn views_fold_and_die() {
    let mut model_graph = ModelGraphBuilder::new();
    let mut b = model_graph.graph("views");
    let x = b.input(Symbol::Tokens, 32, "x");
    let whole = b.view(x, 0, 32, "whole");
    let right = b.view(whole, 16, 16, "right");
    let inner = b.view(right, 4, 8, "inner");
    let unread = b.view(inner, 0, 4, "unread");
    b.view(unread, 0, 2, "unread_too");
    let y = b.scale(inner, 2.0);
    let body = b.finish(&[y]);
    let mut model_graph = model_graph.finish(body, Graph::default());
    let report = passes::rewrite_all(&mut model_graph, &passes::REWRITES).unwrap();
    let left: Vec<_> = model_graph.body.nodes.iter().map(|node| (node.name.as_str(), &node.op)).collect();
    assert_eq!(left[0], ("inner", &Op::View { offset: 20 }));
    assert_eq!(left.len(), 2);
    assert!(report.count("fold_view") >= 2 && report.count("dead_view") >= 3, "{report:?}");
    assert_eq!(model_graph.body.values.len(), 3);
}

#[test]
fn a_linear_map_that_leaves_the_graph_is_not_merged() {
    let mut model_graph = ModelGraphBuilder::new();
    let mut b = model_graph.graph("body");
    let x = b.input(Symbol::Tokens, 32, "x");
    let first = linear(&mut b, x, 8, false, DType::F32, "a");
    let second = linear(&mut b, x, 8, false, DType::F32, "b");
    let body = b.finish(&[first, second]);
    let mut model_graph = model_graph.finish(body, Graph::default());
    let report = passes::rewrite_all(&mut model_graph, &passes::REWRITES).unwrap();
    assert_eq!(counts(&report), [0; 5]);
}

#[test]
fn a_norm_per_head_of_a_sum_stays_apart() {
    let mut model_graph = ModelGraphBuilder::new();
    let mut b = model_graph.graph("body");
    let x = b.input(Symbol::Tokens, 32, "x");
    let sum = b.add(x, x);
    let normed = common::norm(&mut b, sum, 2, "norm");
    let body = b.finish(&[normed]);
    let mut model_graph = model_graph.finish(body, Graph::default());
    let report = passes::rewrite_all(&mut model_graph, &passes::REWRITES).unwrap();
    assert_eq!(report.count("add_norm"), 0);
}

#[test]
fn q_and_k_that_turn_by_other_angles_stay_apart() {
    let mut model_graph = ModelGraphBuilder::new();
    let mut b = model_graph.graph("body");
    let x = b.input(Symbol::Tokens, 32, "x");
    let [q, k, v] = ["q", "k", "v"].map(|name| linear(&mut b, x, 16, false, DType::F32, name));
    let other = minfer_graph::RopeSpec { magnitude: 2.0.into(), ..rope(16) };
    let q = b.rope(q, &other, 1, 16);
    let k = b.rope(k, &rope(16), 1, 16);
    b.kv_store(k, v, 0, 1);
    let body = b.finish(&[q]);
    let mut model_graph = model_graph.finish(body, Graph::default());
    let report = passes::rewrite_all(&mut model_graph, &passes::REWRITES).unwrap();
    assert_eq!(counts(&report), [1, 0, 0, 0, 0]);
}

#[test]
fn q_that_is_read_before_the_store_stays_apart() {
    let mut model_graph = ModelGraphBuilder::new();
    let mut b = model_graph.graph("body");
    let x = b.input(Symbol::Tokens, 32, "x");
    let [q, k, v] = ["q", "k", "v"].map(|name| linear(&mut b, x, 16, false, DType::F32, name));
    let q = b.rope(q, &rope(16), 1, 16);
    let early = b.scale(q, 2.0);
    let k = b.rope(k, &rope(16), 1, 16);
    b.kv_store(k, v, 0, 1);
    let body = b.finish(&[early]);
    let mut model_graph = model_graph.finish(body, Graph::default());
    let report = passes::rewrite_all(&mut model_graph, &passes::REWRITES).unwrap();
    assert_eq!(report.count("rope_store"), 0);
}

#[test]
fn what_the_device_does_not_run_is_left_out_and_reported() {
    let mut model_graph = LLAMA.model_graph();
    let accept = |_: &Graph, node: &minfer_graph::Node| match node.op {
        Op::AddNorm(_) => Support::Unsupported("no such kernel".to_owned()),
        _ => Support::Supported,
    };
    let report = passes::rewrite(&mut model_graph, &passes::REWRITES, &accept).unwrap();
    assert_eq!(counts(&report), [4, 0, 2, 0, 0]);
    let refused: Vec<&str> = report.refused.iter().map(|refusal| refusal.node.as_str()).collect();
    assert_eq!(refused, ["blk.0.ffn_norm", "blk.1.attn_norm", "blk.1.ffn_norm"]);
    assert_eq!(report.refused[0].reason, "no such kernel");
}

#[test]
fn rewrites_are_switched_off_by_name() {
    let model_graph = LLAMA.model_graph();
    let all: Vec<&str> = passes::names();
    let (plain, report) = rewritten(&model_graph, &all);
    assert_eq!((plain, report.applied.len()), (model_graph.clone(), 0));
    let (_, report) = rewritten(&model_graph, &["merge_linears"]);
    // Without joint rows there is nothing to store from.
    assert_eq!(counts(&report), [0, 3, 0, 0, 0]);
    let unknown = passes::enabled(&["fuse_all".to_owned()]).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "unknown rewrite \"fuse_all\" (choose from merge_linears, add_norm, rope_store, fold_view, dead_view)"
    );
}

#[test]
fn a_broken_rule_is_named_with_its_node() {
    let broken = passes::Rewrite {
        name: "shrink",
        find: |site, id| {
            matches!(site.node(id).op, Op::Attention(_)).then(|| {
                let mut patch = passes::Patch::default();
                patch.remove.push(id);
                patch.values.push(TensorDesc::rows(Symbol::Tokens, 1, "small"));
                patch
            })
        },
    };
    let mut model_graph = Family { layers: 1, ..LLAMA }.model_graph();
    let error = passes::rewrite_all(&mut model_graph, &[broken]).unwrap_err();
    assert!(matches!(error, RewriteError::Broken { rewrite: "shrink", .. }));
    assert_eq!(
        error.to_string(),
        "rewrite shrink at blk.0.attention: body: blk.0.attn_output (linear): blk.0.attention is used before it is defined"
    );
}

#[test]
fn rules_that_undo_each_other_end() {
    let renames = passes::Rewrite {
        name: "rename",
        find: |site, id| {
            let node = site.node(id);
            matches!(node.op, Op::Add).then(|| {
                let mut patch = passes::Patch { remove: vec![id], ..passes::Patch::default() };
                patch.insert.push((id, node.clone()));
                patch
            })
        },
    };
    let mut model_graph = LLAMA.model_graph();
    let error = passes::rewrite_all(&mut model_graph, &[renames]).unwrap_err();
    assert!(matches!(error, RewriteError::Endless { rewrite: "rename", .. }));
}
