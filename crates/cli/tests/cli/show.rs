//! `minfer show`.

use minfer::{LoadOptions, Loaded, Machine, MachineOptions};
use minfer_tensor::DType;
use minfer_tensor::blocks::encode_row;
use minfer_testkit::synthetic::{Family, Value as Metadata};
use serde_json::Value;

use crate::place::{Place, has};

#[test]
fn what_a_file_holds() {
    let place = Place::with(Family::Qwen2);
    let text = place.minfer(&["show", "tiny.gguf", "--tensors"]).stdout().replace("\\", "/");
    insta::assert_snapshot!("show_tensors", text);
}

#[test]
fn the_same_as_json() {
    let place = Place::with(Family::Llama);
    let report = place.minfer(&["show", "tiny.gguf", "--json"]).json();
    assert_eq!((&report["model"]["family"], &report["not_run"]), (&"llama".into(), &Value::Null));
    // The f32's own shortest form, and not the digits of its f64.
    assert_eq!(report["metadata"]["llama.attention.layer_norm_rms_epsilon"], 1e-5);
    let tensors = report["tensors"].as_array().expect("an array");
    assert!(
        tensors.iter().any(|tensor| tensor["name"] == "blk.3.ffn_down.weight" && tensor["type"] == "F32")
    );
}

#[test]
fn every_family_is_shown() {
    for &family in Family::ALL {
        let place = Place::with(family);
        let text = place.minfer(&["show", "tiny.gguf"]).stdout();
        let name = format!("synthetic {}: family {}", family.name(), family.architecture());
        has(&text, &[&name, "KV cache of 1000 positions"]);
        let report = place.minfer(&["show", "tiny.gguf", "--json"]).json();
        assert_eq!(report["not_run"], Value::Null, "{}", family.name());
        has(
            &place.minfer(&["show", "tiny.gguf", "--graph", "dot"]).stdout(),
            &["digraph", "block 0", "Attention"],
        );
    }
}

#[test]
fn a_family_that_is_not_read_is_shown_as_far_as_it_goes() {
    let place = Place::new();
    let mut model = Family::Llama.model();
    model.set("general.architecture", "mamba\n2");
    place.write("other.gguf", model.to_bytes());
    let text = place.minfer(&["show", "other.gguf"]).stdout();
    has(&text, &["this build does not run it", "mamba", "it reads llama, qwen2", "llama.block_count = 4"]);
    let report = place.minfer(&["show", "other.gguf", "--json"]).json();
    assert_eq!(report["model"], Value::Null);
    has(report["not_run"].as_str().expect("a reason"), &["mamba"]);
    has(&place.minfer(&["show", "other.gguf", "--graph", "dot"]).failure(), &["mamba"]);
    has(&place.minfer(&["run", "other.gguf", "p"]).failure(), &["mamba"]);
}

#[test]
fn control_characters_of_a_file_stay_in_the_file() {
    let place = Place::new();
    let mut model = Family::Llama.model();
    model.set("general.name", "evil\u{1b}[31m\nname");
    model.set("evil\u{1b}key", Metadata::Text("\u{7}".to_owned()));
    place.write("evil.gguf", model.to_bytes());
    for words in [&["show", "evil.gguf"][..], &["doctor", "evil.gguf"], &["doctor", "evil.gguf", "--kv"]] {
        let text = place.minfer(words).stdout();
        assert!(!text.contains(['\u{1b}', '\u{7}']) && text.contains("evil"), "{text}");
    }
}

#[test]
fn parts_of_a_split_model() {
    let place = Place::new();
    let model = Family::Llama.model();
    for (index, bytes) in model.to_parts(3).iter().enumerate() {
        place.write(&format!("tiny-{:05}-of-00003.gguf", index + 1), bytes);
    }
    let text = place.minfer(&["show", "tiny-00002-of-00003.gguf"]).stdout();
    has(&text, &["part tiny-00001-of-00003.gguf: ", "part tiny-00003-of-00003.gguf: ", "family llama"]);
    let report = place.minfer(&["show", "tiny-00003-of-00003.gguf", "--json"]).json();
    let tensors = report["parts"].as_array().unwrap().iter().map(|part| part["tensors"].as_u64().unwrap());
    assert_eq!(tensors.sum::<u64>(), model.tensors.len() as u64);
    place.write("tiny-00002-of-00003.gguf", b"GGUF");
    has(
        &place.minfer(&["show", "tiny-00001-of-00003.gguf"]).failure(),
        &["tiny-00002-of-00003.gguf", "cut short"],
    );
    place.write("alone-00001-of-00003.gguf", &model.to_parts(3)[0]);
    has(
        &place.minfer(&["run", "alone-00001-of-00003.gguf", "p"]).failure(),
        &["alone-00002-of-00003.gguf: part 2 of 3 of the model is missing"],
    );
}

#[test]
fn graphs() {
    let place = Place::with(Family::Llama);
    let draw = |flags: &[&str]| place.minfer(&[&["show", "tiny.gguf", "--graph"], flags].concat());
    has(&draw(&["dot"]).stdout(), &["digraph", "block 0", "Attention"]);
    let layer = draw(&["dot", "--layer", "1"]).stdout();
    assert!(layer.contains("digraph") && layer.len() < draw(&["dot"]).stdout().len());
    let (before, after) = (draw(&["json", "--before"]).json(), draw(&["json"]).json());
    assert_ne!(before, after);
    has(&draw(&["dot", "--layer", "4"]).failure(), &["--layer 4", "layers 0 to 3"]);
    has(&draw(&["svg"]).env("PATH", "").failure(), &["Graphviz", "--graph dot"]);
    draw(&["png"]).usage();
    has(&draw(&["dot", "--tensors"]).usage(), &["--tensors", "--graph"]);
    place.minfer(&["show", "tiny.gguf", "--layer", "1"]).usage();
}

/// The backend joins no F16 matrix with quantised ones, so such a file runs other nodes than its neighbours.
#[test]
fn the_graph_shown_is_the_graph_that_runs() {
    for (v_type, joined) in [(DType::Q8_0, true), (DType::F16, false)] {
        let place = Place::new();
        let mut model = Family::Llama.model();
        for tensor in &mut model.tensors {
            let attention = ["attn_q.", "attn_k.", "attn_v."].iter().any(|part| tensor.name.contains(part));
            if attention {
                let dtype = if tensor.name.contains("attn_v.") { v_type } else { DType::Q8_0 };
                let values = tensor.values();
                tensor.bytes = vec![0; dtype.row_bytes(values.len() as u64).expect("whole blocks") as usize];
                encode_row(dtype, &values, &mut tensor.bytes).expect("encoded");
                tensor.dtype = dtype;
            }
        }
        place.write("tiny.gguf", model.to_bytes());
        let machine = Machine::new(&MachineOptions { threads: Some(1), ..MachineOptions::default() });
        let file = minfer::ModelFile::open(&place.path("tiny.gguf")).expect("opened");
        let loaded =
            Loaded::new(&machine.expect("a machine"), &file, &LoadOptions::default()).expect("loaded");
        let stores = |node: &minfer::graph::Node| matches!(node.op, minfer::graph::Op::RopeStore(_));
        assert_eq!(loaded.executor().model_graph().body.nodes.iter().any(stores), joined, "{v_type}");
        let runs = minfer::graph::json::model_graph(loaded.executor().model_graph());
        assert_eq!(place.minfer(&["show", "tiny.gguf", "--graph", "json"]).json(), runs, "{v_type}");
    }
}
