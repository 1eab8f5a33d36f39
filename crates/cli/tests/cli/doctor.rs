//! `minfer doctor`.

use std::collections::BTreeSet;

use minfer_testkit::synthetic::Family;

use crate::place::{Place, has};

/// Every `MINFER_` variable that the help of any command names.
fn variables_in_help(place: &Place) -> BTreeSet<String> {
    let commands = ["run", "show", "tokenize", "detokenize", "logprobs", "perplexity", "bench", "doctor"];
    let helps = commands.map(|command| place.minfer(&[command, "--help"]).stdout());
    let words = helps.iter().flat_map(|help| help.split(|c: char| !c.is_ascii_uppercase() && c != '_'));
    words.filter(|word| word.starts_with("MINFER_")).map(str::to_owned).collect()
}

#[test]
fn knobs_list_every_variable() {
    let place = Place::new();
    let knobs = place.minfer(&["doctor", "--knobs", "--json"]).json();
    let rows = knobs.as_array().expect("rows");
    let listed: BTreeSet<_> =
        rows.iter().filter_map(|row| row["variable"].as_str().map(str::to_owned)).collect();
    assert_eq!(listed.len(), rows.len(), "each once");
    let mut wanted = variables_in_help(&place);
    wanted.insert("MINFER_MODELS".to_owned());
    assert_eq!(listed, wanted);
    for row in rows.iter().filter(|row| row["flag"].is_string()) {
        let flag = row["flag"].as_str().unwrap().trim_start_matches('-').replace('-', "_").to_uppercase();
        assert_eq!(row["variable"], format!("MINFER_{flag}"));
    }
    let text = place.minfer(&["doctor", "--knobs"]).env("MINFER_ISA", "").stdout();
    assert!(listed.iter().all(|variable| text.contains(variable.as_str())));
}

#[test]
fn the_machine() {
    let place = Place::with(Family::Llama);
    let report = place.minfer(&["doctor", "--json", "-t", "2", "--isa", "scalar"]).json();
    assert_eq!((&report["threads"], &report["isa"]), (&2.into(), &"scalar".into()));
    assert_eq!(report["models_folder"], place.path("models").to_str().unwrap());
    let text = place.minfer(&["doctor", "tiny.gguf"]).stdout();
    has(&text, &["processor", "memory", "synthetic llama", "512 positions"]);
}

#[test]
fn the_geometry_of_a_cache() {
    let place = Place::with(Family::Llama);
    let report =
        |flags: &[&str]| place.minfer(&[&["doctor", "tiny.gguf", "--kv", "--json"], flags].concat()).json();
    let (f16, f32) = (report(&[]), report(&["--cache-type", "f32"]));
    // 4 layers of 2 heads of 16 elements, K and V.
    assert_eq!((&f16["bytes_per_token"], &f32["bytes_per_token"]), (&512.into(), &1024.into()));
    let block = f16["block_tokens"].as_u64().unwrap();
    assert_eq!(f16["bytes_per_block"], 512 * block);
    assert_eq!(f16["groups"][0]["k_format"], "f16");
    let compared: Vec<_> =
        f16["compared"].as_array().unwrap().iter().map(|row| &row["bytes_per_token"]).collect();
    assert_eq!(compared, [1024, 512, 512]);
    has(
        &place.minfer(&["doctor", "tiny.gguf", "--kv", "-c", "100"]).stdout(),
        &["512 bytes a token", "100 positions"],
    );
    place.minfer(&["doctor", "--kv"]).usage();
}
