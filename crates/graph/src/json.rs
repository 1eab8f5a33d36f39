//! Graphs and KV specs as JSON.

use serde_json::{Value, json};

use crate::{
    AttentionSpec, EmbedBy, Graph, KvSpec, LinearPart, Mask, ModelGraph, Node, NormKind, NormSpec, Op,
    RopePairs, RopeSpec, TensorDesc, WeightDesc, WeightId,
};

/// A model graph: weights, body, head.
pub fn model_graph(model_graph: &ModelGraph) -> Value {
    json!({
        "weights": model_graph.weights.iter().map(weight).collect::<Vec<_>>(),
        "body": graph(&model_graph.body, &model_graph.weights),
        "head": graph(&model_graph.head, &model_graph.weights),
    })
}

/// A graph: values by id, nodes in execution order with operands and results as ids, inputs and
/// outputs as ids. Weights are named.
pub fn graph(graph: &Graph, weights: &[WeightDesc]) -> Value {
    json!({
        "name": graph.name,
        "values": graph.values.iter().map(value).collect::<Vec<_>>(),
        "nodes": graph.nodes.iter().map(|item| node(item, weights)).collect::<Vec<_>>(),
        "inputs": ids(&graph.inputs),
        "outputs": ids(&graph.outputs),
    })
}

/// Groups of a KV cache.
pub fn kv_spec(spec: &KvSpec) -> Value {
    let groups = spec.groups.iter().zip(&spec.max_blocks).map(|(group, max_blocks)| {
        json!({
            "layers": group.layers,
            "kv_heads": group.kv_heads,
            "k_dim": group.k_dim,
            "v_dim": group.v_dim,
            "k_format": group.k_format.name(),
            "v_format": group.v_format.name(),
            "layout": group.layout.name(),
            "block_tokens": group.block_tokens,
            "max_blocks": max_blocks,
        })
    });
    Value::Array(groups.collect())
}

fn ids(values: &[crate::ValueId]) -> Vec<u32> {
    values.iter().map(|id| id.0).collect()
}

fn weight(desc: &WeightDesc) -> Value {
    json!({ "name": desc.name, "dtype": desc.dtype.name(), "dims": desc.dims })
}

fn value(desc: &TensorDesc) -> Value {
    let dims: Vec<String> = desc.dims.iter().map(ToString::to_string).collect();
    json!({ "name": desc.name, "dtype": desc.dtype.name(), "dims": dims })
}

fn node(node: &Node, weights: &[WeightDesc]) -> Value {
    json!({
        "name": node.name,
        "op": node.op.name(),
        "payload": payload(&node.op, weights),
        "inputs": ids(&node.inputs),
        "outputs": ids(&node.outputs),
    })
}

fn payload(op: &Op, weights: &[WeightDesc]) -> Value {
    let name = |id: WeightId| weights[id.0 as usize].name.as_str();
    match op {
        Op::Embed { table, by } => {
            let by = match by {
                EmbedBy::Token => "token",
                EmbedBy::Position => "position",
            };
            json!({ "table": name(*table), "by": by })
        }
        Op::Norm(spec) | Op::AddNorm(spec) => norm(spec, weights),
        Op::Linear { parts } => {
            let part =
                |part: &LinearPart| json!({ "weight": name(part.weight), "bias": part.bias.map(name) });
            json!({ "parts": parts.iter().map(part).collect::<Vec<_>>() })
        }
        Op::Rope { rope: angles, heads, head_dim } => {
            json!({ "heads": heads, "head_dim": head_dim, "rope": rope(angles) })
        }
        Op::KvStore { layer, kv_heads, k_dim, v_dim } => {
            json!({ "layer": layer, "kv_heads": kv_heads, "k_dim": k_dim, "v_dim": v_dim })
        }
        Op::Attention(spec) => attention(spec, weights),
        Op::Activate(activation) | Op::GatedActivate(activation) => json!({ "function": activation.name() }),
        Op::Scale { factor } => json!({ "factor": factor.get() }),
        Op::SoftCap { cap } => json!({ "cap": cap.get() }),
        Op::View { offset } => json!({ "offset": offset }),
        Op::RopeStore(spec) => json!({
            "layer": spec.layer,
            "heads": spec.heads,
            "kv_heads": spec.kv_heads,
            "k_dim": spec.k_dim,
            "v_dim": spec.v_dim,
            "rope": rope(&spec.rope),
        }),
        Op::Add | Op::Mul | Op::GatherRows => json!({}),
    }
}

fn norm(spec: &NormSpec, weights: &[WeightDesc]) -> Value {
    let name = |id: WeightId| weights[id.0 as usize].name.as_str();
    let kind = match spec.kind {
        NormKind::Rms => "rms",
        NormKind::Layer => "layer",
    };
    json!({
        "kind": kind,
        "weight": spec.weight.map(name),
        "bias": spec.bias.map(name),
        "eps": spec.eps.get(),
        "groups": spec.groups,
    })
}

fn rope(spec: &RopeSpec) -> Value {
    let pairs = match spec.pairs {
        RopePairs::Adjacent => "adjacent",
        RopePairs::Halves => "halves",
    };
    let frequencies: Vec<f64> = spec.frequencies.iter().map(|frequency| frequency.get()).collect();
    json!({ "pairs": pairs, "frequencies": frequencies, "magnitude": spec.magnitude.get() })
}

fn attention(spec: &AttentionSpec, weights: &[WeightDesc]) -> Value {
    let mask = match spec.mask {
        Mask::Causal => json!("causal"),
        Mask::Window(window) => json!({ "window": window }),
        Mask::Bidirectional => json!("bidirectional"),
    };
    json!({
        "layer": spec.layer,
        "heads": spec.heads,
        "kv_heads": spec.kv_heads,
        "k_dim": spec.k_dim,
        "v_dim": spec.v_dim,
        "scale": spec.scale.get(),
        "mask": mask,
        "softcap": spec.softcap.map(|cap| cap.get()),
        "sinks": spec.sinks.map(|id| weights[id.0 as usize].name.as_str()),
        "rope": spec.rope.as_ref().map(rope),
    })
}
