//! A real model.

use minfer_testkit::fetched;
use serde_json::Value;

use crate::place::{Place, json_lines};

const FILE: &str = "smollm2-135m-instruct-q4_1.gguf";
const TOKENS: &str = include_str!("../data/smollm2_tokens.json");

fn model() -> String {
    fetched::model(FILE).to_str().expect("UTF-8").to_owned()
}

#[test]
#[ignore = "reads a real model: run by `cargo xtask test`"]
fn the_greedy_answer_is_the_recorded_one_twice() {
    let model = model();
    let place = Place::new();
    let words = ["run", &model, "Why is the sky blue?", "--system", "You answer in one short sentence."];
    let flags = ["--temp", "0", "-n", "24"];
    let first = place.minfer(&[&words[..], &flags].concat()).stdout();
    insta::assert_snapshot!("smollm2_greedy", first);
    let narrow = ["--isa", "scalar", "-t", "1", "-b", "8"];
    assert_eq!(place.minfer(&[&words[..], &flags, &narrow].concat()).stdout(), first);
}

#[test]
#[ignore = "reads a real model: run by `cargo xtask test`"]
fn ids_are_the_recorded_ones() {
    let model = model();
    let cases: Vec<Value> = serde_json::from_str(TOKENS).expect("JSON");
    let input: String = cases.iter().map(|case| format!("{case}\n")).collect();
    let output = Place::new().minfer(&["tokenize", &model, "--jsonl"]).stdin(input).stdout();
    let got: Vec<_> = json_lines(&output).into_iter().map(|row| row["ids"].clone()).collect();
    let wanted: Vec<_> = cases.iter().map(|case| case["ids"].clone()).collect();
    assert_eq!(got, wanted);
}
