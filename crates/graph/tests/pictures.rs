//! DOT and JSON of graphs. The DOT files stay in `target/tmp`.

mod common;

use common::{QWEN2, choice};
use minfer_graph::{KvSpec, dot, json, passes};

fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

#[test]
fn a_layer_is_drawn_with_its_weights_shapes_and_cache() {
    let plain = QWEN2.model_graph();
    let mut fused = plain.clone();
    passes::rewrite_all(&mut fused, &passes::REWRITES).unwrap();
    let before = dot::render(&plain.body, &plain.weights, "blk.0.");
    let after = dot::render(&fused.body, &fused.weights, "blk.0.");
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
    let whole = dot::render(&fused.body, &fused.weights, "");
    let head = dot::render(&fused.head, &fused.weights, "");
    for (name, text) in [("before", &before), ("after", &after), ("whole", &whole), ("head", &head)] {
        assert_eq!(count(text, "{"), count(text, "}"), "{name}");
        std::fs::write(folder.join(format!("{name}.dot")), text).unwrap();
    }
    assert_eq!(count(&before, "fillcolor=\"#cfe3f7\""), 7, "linear maps");
    assert_eq!(count(&after, "fillcolor=\"#cfe3f7\""), 4);
    assert!(after.contains("attn_k.weight  Q8_0 32 × 64 + bias"));
    assert!(after.contains("shape=cylinder") && after.contains("label=\"write K, V\""));
    assert!(before.contains("label=\"  tokens × 96\""));
    assert!(!before.contains("cluster_1") && whole.contains("cluster_1"));
}

#[test]
fn json_names_operations_weights_and_ids() {
    let model_graph = QWEN2.model_graph();
    let value = json::model_graph(&model_graph);
    let body = &value["body"];
    assert_eq!(body["nodes"].as_array().unwrap().len(), model_graph.body.nodes.len());
    let q = &body["nodes"][2];
    assert_eq!((q["name"].as_str(), q["op"].as_str()), (Some("blk.0.attn_q"), Some("linear")));
    assert_eq!(q["payload"]["parts"][0]["weight"], "blk.0.attn_q.weight");
    assert_eq!(q["payload"]["parts"][0]["bias"], "blk.0.attn_q.bias");
    let result = q["outputs"][0].as_u64().unwrap() as usize;
    assert_eq!(body["values"][result]["dims"], serde_json::json!(["tokens", "64"]));
    assert_eq!(value["weights"][0]["dtype"], "Q8_0");
    assert_eq!(body["nodes"][8]["payload"]["mask"], "causal");
    let kv = json::kv_spec(&KvSpec::for_model(&model_graph, choice()));
    assert_eq!(kv[0]["layers"], serde_json::json!([0, 1]));
}
