//! Every rule of graphs, broken once; the message names node, operation and shapes.

mod common;

use common::{Family, LLAMA};
use minfer_graph::{
    AttentionSpec, Dim, EmbedBy, F64Bits, Graph, LinearPart, Mask, ModelGraph, Node, Op, RopeSpec, Symbol,
    TensorDesc, ValueId, WeightId, passes,
};
use minfer_tensor::DType;

type Break = fn(&mut ModelGraph);

/// The body's node of this name.
fn node<'p>(model_graph: &'p mut ModelGraph, name: &str) -> &'p mut Node {
    model_graph.body.nodes.iter_mut().find(|node| node.name == name).unwrap()
}

fn attention(model_graph: &mut ModelGraph) -> &mut AttentionSpec {
    match &mut node(model_graph, "blk.0.attention").op {
        Op::Attention(spec) => spec,
        other => panic!("{other:?}"),
    }
}

fn result(model_graph: &mut ModelGraph, name: &str) -> usize {
    node(model_graph, name).outputs[0].0 as usize
}

fn weight(model_graph: &mut ModelGraph, name: &str) -> usize {
    model_graph.weights.iter().position(|weight| weight.name == name).unwrap()
}

const PLAIN: &[(&str, Break)] = &[
    ("body: blk.0.attn_norm (norm): takes 1 operands, has 2", |p| {
        let node = node(p, "blk.0.attn_norm");
        node.inputs.push(node.inputs[0]);
    }),
    ("body: blk.0.attn_q (linear): has 1 results, the node lists 0", |p| {
        node(p, "blk.0.attn_q").outputs.clear()
    }),
    ("body: blk.0.attn_q (linear): value 999 is not in the table of values", |p| {
        node(p, "blk.0.attn_q").inputs[0] = ValueId(999);
    }),
    ("body: token_embd (embed): weight 999 is not in the table of weights", |p| {
        node(p, "token_embd").op = Op::Embed { table: WeightId(999), by: EmbedBy::Token };
    }),
    ("body: blk.0.attn_norm (norm): blk.0.ffn_down.add is used before it is defined", |p| {
        let late = ValueId(result(p, "blk.0.ffn_down.add") as u32);
        node(p, "blk.0.attn_norm").inputs[0] = late;
    }),
    ("body: blk.0.attn_k (linear): blk.0.attn_q is defined twice", |p| {
        let q = node(p, "blk.0.attn_q").outputs.clone();
        let k = node(p, "blk.0.attn_k");
        k.outputs = q;
        let Op::Linear { parts } = &mut k.op else { panic!() };
        parts[0].weight = WeightId(2);
    }),
    (
        "body: blk.0.attn_q (linear): blk.0.attn_q is F16 [tokens, 64], expected an F32 matrix with a constant, non-zero width",
        |p| {
            let q = result(p, "blk.0.attn_q");
            p.body.values[q].dtype = DType::F16;
        },
    ),
    (
        "body: blk.0.attn_q (linear): result blk.0.attn_q is F32 [tokens, 63], expected F32 [tokens, 64]",
        |p| {
            let q = result(p, "blk.0.attn_q");
            p.body.values[q].dims[1] = Dim::fixed(63);
        },
    ),
    (
        "body: blk.0.attn_norm (norm): result blk.0.attn_norm is F32 [rows, 64], expected F32 [tokens, 64]",
        |p| {
            let normed = result(p, "blk.0.attn_norm");
            p.body.values[normed].dims[0] = Dim::each(Symbol::Rows);
        },
    ),
    (
        "body: blk.0.attn_norm (norm): norm weight blk.0.attn_norm.weight is F32 [16], expected F32 [32]",
        |p| {
            let factors = weight(p, "blk.0.attn_norm.weight");
            p.weights[factors].dims = vec![16];
            let Op::Norm(spec) = &mut node(p, "blk.0.attn_norm").op else { panic!() };
            spec.groups = 2;
        },
    ),
    ("body: blk.0.attn_norm (norm): a row of 64 elements does not split into 3 groups", |p| {
        let Op::Norm(spec) = &mut node(p, "blk.0.attn_norm").op else { panic!() };
        spec.groups = 3;
    }),
    ("body: blk.0.attn_norm (norm): eps is NaN", |p| {
        let Op::Norm(spec) = &mut node(p, "blk.0.attn_norm").op else { panic!() };
        spec.eps = f32::NAN.into();
    }),
    (
        "body: blk.0.attn_norm (norm): norm weight blk.0.attn_norm.weight is F16 [64], expected F32 [64]",
        |p| {
            let id = weight(p, "blk.0.attn_norm.weight");
            p.weights[id].dtype = DType::F16;
        },
    ),
    (
        "body: blk.0.attn_q (linear): matrix blk.0.attn_q.weight is F32 [64, 32], expected 64 columns for the operand F32 [tokens, 64]",
        |p| {
            let id = weight(p, "blk.0.attn_q.weight");
            p.weights[id].dims = vec![64, 32];
        },
    ),
    (
        "body: blk.0.attn_q (linear): matrix blk.0.attn_q.weight is F32 [4096], expected a matrix of numbers",
        |p| {
            let id = weight(p, "blk.0.attn_q.weight");
            p.weights[id].dims = vec![4096];
        },
    ),
    (
        "body: blk.0.attn_q (linear): matrix blk.0.attn_q.weight is I32 [64, 64], expected a matrix of numbers",
        |p| {
            let id = weight(p, "blk.0.attn_q.weight");
            p.weights[id].dtype = DType::I32;
        },
    ),
    ("body: blk.0.attn_q (linear): bias blk.0.attn_norm.weight is F32 [64], expected F32 [32]", |p| {
        let id = weight(p, "blk.0.attn_q.weight");
        p.weights[id].dims = vec![32, 64];
        let Op::Linear { parts } = &mut node(p, "blk.0.attn_q").op else { panic!() };
        parts[0].bias = Some(WeightId(1));
    }),
    ("body: blk.0.attn_q (linear): has no parts", |p| {
        node(p, "blk.0.attn_q").op = Op::Linear { parts: Vec::new() }
    }),
    (
        "body: blk.0.attn_q.rope (rope): operand blk.0.attn_q is F32 [tokens, 64], expected F32 [tokens, 80]",
        |p| {
            let Op::Rope { heads, .. } = &mut node(p, "blk.0.attn_q.rope").op else { panic!() };
            *heads = 5;
        },
    ),
    ("body: blk.0.attn_q.rope (rope): rotates 16 of the 8 elements of a head", |p| {
        let Op::Rope { heads, head_dim, .. } = &mut node(p, "blk.0.attn_q.rope").op else { panic!() };
        (*heads, *head_dim) = (8, 8);
    }),
    ("body: blk.0.attn_q.rope (rope): rotates 0 of the 16 elements of a head", |p| {
        let Op::Rope { rope, .. } = &mut node(p, "blk.0.attn_q.rope").op else { panic!() };
        *rope = RopeSpec { frequencies: Vec::new().into(), ..rope.clone() };
    }),
    ("body: blk.0.attn_q.rope (rope): has a frequency that is not a number", |p| {
        let Op::Rope { rope, .. } = &mut node(p, "blk.0.attn_q.rope").op else { panic!() };
        *rope = RopeSpec { frequencies: vec![F64Bits::from(f64::NAN)].into(), ..rope.clone() };
    }),
    ("body: blk.0.kv_store (kv_store): V blk.0.attn_v is F32 [tokens, 32], expected F32 [tokens, 16]", |p| {
        let Op::KvStore { v_dim, .. } = &mut node(p, "blk.0.kv_store").op else { panic!() };
        *v_dim = 8;
    }),
    ("body: blk.0.kv_store (kv_store): kv_heads x k_dim is 0 x 16", |p| {
        let Op::KvStore { kv_heads, .. } = &mut node(p, "blk.0.kv_store").op else { panic!() };
        *kv_heads = 0;
    }),
    ("body: blk.1.kv_store (kv_store): stores the KV cache of layer 0, as blk.0.kv_store does", |p| {
        let Op::KvStore { layer, .. } = &mut node(p, "blk.1.kv_store").op else { panic!() };
        *layer = 0;
    }),
    ("body: blk.0.attention (attention): reads the KV cache of layer 1, which no earlier node stores", |p| {
        attention(p).layer = 1
    }),
    ("body: blk.0.attention (attention): names another rotation of K than blk.0.kv_store stores", |p| {
        attention(p).rope = None
    }),
    ("body: blk.0.attention (attention): names another rotation of K than blk.0.kv_store stores", |p| {
        let rope = attention(p).rope.as_mut().unwrap();
        *rope = RopeSpec { magnitude: 2.0.into(), ..rope.clone() };
    }),
    ("body: blk.0.attention (attention): rotates 18 of the 16 elements of a head", |p| {
        let rope = attention(p).rope.as_mut().unwrap();
        *rope = RopeSpec { frequencies: vec![F64Bits::from(1.0); 9].into(), ..rope.clone() };
    }),
    (
        "body: blk.0.attention (attention): cache of layer 0 [kv_heads, k_dim, v_dim] is [2, 16, 16] by blk.0.kv_store, expected [1, 16, 16]",
        |p| attention(p).kv_heads = 1,
    ),
    ("body: blk.0.attention (attention): 3 KV heads do not divide 4 heads", |p| attention(p).kv_heads = 3),
    ("body: blk.0.attention (attention): a window of 0 positions shows nothing", |p| {
        attention(p).mask = Mask::Window(0);
    }),
    ("body: blk.0.attention (attention): a cap of -1.0 is not a positive number", |p| {
        attention(p).softcap = Some((-1.0).into());
    }),
    ("body: blk.0.attention (attention): sinks blk.0.attn_norm.weight is F32 [64], expected F32 [4]", |p| {
        attention(p).sinks = Some(WeightId(1));
    }),
    ("body: blk.0.attention (attention): the scale is inf", |p| attention(p).scale = f32::INFINITY.into()),
    (
        "body: blk.0.ffn_gate.silu (gated_activate): operand blk.0.attn_norm is F32 [tokens, 64], expected F32 [tokens, 96] like blk.0.ffn_gate",
        |p| {
            let other = node(p, "blk.0.attn_norm").outputs[0];
            node(p, "blk.0.ffn_gate.silu").inputs[1] = other;
        },
    ),
    ("body: blk.0.ffn_down.add (soft_cap): a cap of 0.0 is not a positive number", |p| {
        let node = node(p, "blk.0.ffn_down.add");
        node.op = Op::SoftCap { cap: 0.0.into() };
        node.inputs.pop();
    }),
    ("model: blk.0.attn_q.weight (weight): two weights have this name", |p| {
        let name = p.weights[2].name.clone();
        p.weights[3].name = name;
    }),
    ("model: blk.0.attn_q.weight (weight): F32 [0, 64] has no elements", |p| p.weights[2].dims[0] = 0),
    (
        "model: token_embd.weight (weight): a row of 65 elements is not a whole number of Q8_0 blocks of 32",
        |p| p.weights[0].dims[1] = 65,
    ),
    ("body: outputs (graph): value 999 is not in the table of values", |p| {
        p.body.outputs = vec![ValueId(999)]
    }),
    ("body: inputs (graph): the body has 1 inputs, expected none", |p| {
        p.body.values.push(TensorDesc::rows(Symbol::Tokens, 4, "extra"));
        p.body.inputs.push(ValueId(p.body.values.len() as u32 - 1));
    }),
    (
        "head: inputs (graph): expected one body output, one head input and one head output, found 2, 1 and 1",
        |p| {
            p.body.outputs.push(ValueId(0));
        },
    ),
    ("head: inputs (graph): the head's input is F32 [tokens, 64], the body's output F32 [tokens, 96]", |p| {
        p.body.outputs = vec![node(p, "blk.1.ffn_gate").outputs[0]];
    }),
    ("head: outputs (graph): the logits are F32 [tokens, 64], expected one row for each of rows", |p| {
        p.head.outputs = p.head.inputs.clone();
    }),
    ("head: blk.0.attention (attention): reads the KV cache of layer 0, which no earlier node stores", |p| {
        let attention = node(p, "blk.0.attention").clone();
        p.head.values.push(TensorDesc::rows(Symbol::Tokens, 64, "q"));
        let out = ValueId(p.head.values.len() as u32 - 1);
        p.head.nodes.push(Node { inputs: p.head.inputs.clone(), outputs: vec![out], ..attention });
    }),
    ("head: blk.0.kv_store (graph): the head must not touch the KV cache", |p| {
        let op = Op::KvStore { layer: 0, kv_heads: 4, k_dim: 16, v_dim: 16 };
        let name = "blk.0.kv_store".to_owned();
        let inputs = vec![p.head.inputs[0]; 2];
        p.head.nodes.push(Node { op, inputs, outputs: Vec::new(), name });
    }),
];

/// On the rewritten model graph.
const FUSED: &[(&str, Break)] = &[
    (
        "body: blk.0.ffn_up (view): columns 97..193 lie outside of blk.0.ffn_gate+ffn_up F32 [tokens, 192]",
        |p| {
            node(p, "blk.0.ffn_up").op = Op::View { offset: 97 };
        },
    ),
    ("body: blk.0.ffn_norm (add_norm): normalises 2 groups, expected 1", |p| {
        let Op::AddNorm(spec) = &mut node(p, "blk.0.ffn_norm").op else { panic!() };
        spec.groups = 2;
    }),
    (
        "body: blk.0.ffn_norm (add_norm): operand blk.0.attn_q+attn_k+attn_v is F32 [tokens, 128], expected F32 [tokens, 64] like token_embd",
        |p| {
            let joint = node(p, "blk.0.attn_q+attn_k+attn_v").outputs[0];
            node(p, "blk.0.ffn_norm").inputs[1] = joint;
        },
    ),
    (
        "body: blk.0.rope_store (rope_store): operand blk.0.attn_q+attn_k+attn_v is F32 [tokens, 128], expected F32 [tokens, 112]",
        |p| {
            let Op::RopeStore(spec) = &mut node(p, "blk.0.rope_store").op else { panic!() };
            spec.v_dim = 8;
        },
    ),
    ("body: blk.0.rope_store (rope_store): 3 KV heads do not divide 4 heads", |p| {
        let Op::RopeStore(spec) = &mut node(p, "blk.0.rope_store").op else { panic!() };
        spec.kv_heads = 3;
    }),
    (
        "body: blk.0.attn_q+attn_k+attn_v (linear): result blk.0.attn_q+attn_k+attn_v is F32 [tokens, 128], expected F32 [tokens, 192]",
        |p| {
            let Op::Linear { parts } = &mut node(p, "blk.0.attn_q+attn_k+attn_v").op else { panic!() };
            parts.push(LinearPart { weight: parts[0].weight, bias: None });
        },
    ),
    ("body: outputs (graph): the output must be computed, not a view or an input", |p| {
        let out = p.body.outputs[0];
        p.body.values.push(p.body.value(out).clone());
        let view = ValueId(p.body.values.len() as u32 - 1);
        let node =
            Node { op: Op::View { offset: 0 }, inputs: vec![out], outputs: vec![view], name: "v".to_owned() };
        p.body.nodes.push(node);
        p.body.outputs = vec![view];
    }),
];

#[test]
fn every_broken_rule_is_named() {
    let plain = LLAMA.model_graph();
    plain.verify().unwrap();
    let mut fused = plain.clone();
    passes::rewrite_all(&mut fused, &passes::REWRITES).unwrap();
    let cases = PLAIN.iter().map(|case| (&plain, case)).chain(FUSED.iter().map(|case| (&fused, case)));
    let mut wrong = Vec::new();
    for (model_graph, (expected, break_it)) in cases {
        let mut broken = model_graph.clone();
        break_it(&mut broken);
        let found = broken.verify().map_or_else(|error| error.to_string(), |()| "nothing".to_owned());
        if found != *expected {
            wrong.push(format!("expected {expected}\n   found {found}"));
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn values_that_nobody_names_do_no_harm() {
    let mut model_graph = Family { layers: 1, ..LLAMA }.model_graph();
    model_graph.body.values.push(TensorDesc {
        dtype: DType::F16,
        dims: Vec::new(),
        name: "left over".to_owned(),
    });
    model_graph.verify().unwrap();
}

#[test]
fn the_builder_gives_names_and_reuses_weights() {
    let model_graph = LLAMA.model_graph();
    let names: Vec<&str> = model_graph.body.nodes.iter().take(17).map(|node| node.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "token_embd",
            "blk.0.attn_norm",
            "blk.0.attn_q",
            "blk.0.attn_k",
            "blk.0.attn_v",
            "blk.0.attn_q.rope",
            "blk.0.attn_k.rope",
            "blk.0.kv_store",
            "blk.0.attention",
            "blk.0.attn_output",
            "blk.0.attn_output.add",
            "blk.0.ffn_norm",
            "blk.0.ffn_gate",
            "blk.0.ffn_up",
            "blk.0.ffn_gate.silu",
            "blk.0.ffn_down",
            "blk.0.ffn_down.add",
        ]
    );
    let tables = model_graph.weights.iter().filter(|weight| weight.name == "token_embd.weight").count();
    assert_eq!(tables, 1);
    assert_eq!(model_graph.input_vocabulary(), 40);
}

#[test]
#[should_panic(expected = "weight w is F16 [4, 4], but was F32 [4, 4] before")]
fn one_name_has_one_shape() {
    let mut model_graph = minfer_graph::ModelGraphBuilder::new();
    model_graph.weight("w", DType::F32, &[4, 4]);
    model_graph.weight("w", DType::F16, &[4, 4]);
}

#[test]
#[should_panic(expected = "body: b.add (add): operand b is F32 [tokens, 5], expected F32 [tokens, 4] like a")]
fn the_builder_names_what_does_not_fit() {
    let mut model_graph = minfer_graph::ModelGraphBuilder::new();
    let mut body = model_graph.body();
    let a = body.input(Symbol::Tokens, 4, "a");
    let b = body.input(Symbol::Tokens, 5, "b");
    body.add(a, b);
}

#[test]
fn an_empty_graph_is_valid() {
    assert_eq!(Graph::default().verify(&[]), Ok(()));
}
