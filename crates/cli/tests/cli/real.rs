//! A real model, where the variable MINFER_TEST_MODELS names the folder that has it.

use std::path::PathBuf;

use serde_json::Value;

use crate::place::{Place, json_lines};

const FILE: &str = "smollm2-135m-instruct-q4_1.gguf";
const TOKENS: &str = include_str!("../data/smollm2_tokens.json");

/// The model's path; `None`, with the reason printed, where there is no folder of models. A folder without the file is
/// a failure.
fn model() -> Option<String> {
    let Some(folder) = std::env::var_os("MINFER_TEST_MODELS").filter(|folder| !folder.is_empty()) else {
        println!("skipped: MINFER_TEST_MODELS does not name a folder with {FILE}");
        return None;
    };
    let path = PathBuf::from(folder).join(FILE);
    assert!(path.is_file(), "{} is missing", path.display());
    Some(path.to_str().expect("UTF-8").to_owned())
}

#[test]
fn the_greedy_answer_is_the_recorded_one_twice() {
    let Some(model) = model() else { return };
    let place = Place::new();
    let words = ["run", &model, "Why is the sky blue?", "--system", "You answer in one short sentence."];
    let flags = ["--temp", "0", "-n", "24"];
    let first = place.minfer(&[&words[..], &flags].concat()).stdout();
    insta::assert_snapshot!("smollm2_greedy", first);
    let narrow = ["--isa", "scalar", "-t", "1", "-b", "8"];
    assert_eq!(place.minfer(&[&words[..], &flags, &narrow].concat()).stdout(), first);
}

#[test]
fn ids_are_the_recorded_ones() {
    let Some(model) = model() else { return };
    let cases: Vec<Value> = serde_json::from_str(TOKENS).expect("JSON");
    let input: String = cases.iter().map(|case| format!("{case}\n")).collect();
    let output = Place::new().minfer(&["tokenize", &model, "--jsonl"]).stdin(input).stdout();
    let got: Vec<_> = json_lines(&output).into_iter().map(|row| row["ids"].clone()).collect();
    let wanted: Vec<_> = cases.iter().map(|case| case["ids"].clone()).collect();
    assert_eq!(got, wanted);
}
