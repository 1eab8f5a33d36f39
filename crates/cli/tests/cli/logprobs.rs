//! `minfer logprobs`.

use minfer_tensor::DType;
use minfer_testkit::synthetic::{Family, quantised, reference};
use serde_json::Value;

use crate::place::{Place, has, json_lines};

const IDS: &str = "[84, 257, 32, 265, 10, 100, 101, 102, 103, 104, 256, 258, 1, 2, 3, 4, 5]";

#[test]
fn one_line_for_each_position() {
    let place = Place::with(Family::Llama);
    let output = place.minfer(&["logprobs", "tiny.gguf", "--top", "3"]).stdin("[5, 6, 7]").stdout();
    let rows = json_lines(&output);
    assert_eq!(rows.len(), 3);
    for (index, row) in rows.iter().enumerate() {
        assert_eq!((&row["pos"], &row["token"]), (&index.into(), &(index + 5).into()));
        let top = row["top"].as_array().expect("an array");
        assert_eq!(top.len(), 3);
        let logprob = |entry: &Value| entry[1].as_f64().expect("a number");
        assert!(top.windows(2).all(|pair| logprob(&pair[0]) >= logprob(&pair[1])) && logprob(&top[0]) < 0.0);
        assert_eq!(row["next_logprob"].is_null(), index == 2);
    }
    let output = place.minfer(&["logprobs", "tiny.gguf", "--top", "0"]).stdin("[5]").stdout();
    assert_eq!(output, "{\"pos\":0,\"token\":5,\"next_logprob\":null,\"top\":[]}\n");
}

#[test]
fn recorded_distributions_of_every_family() {
    for &family in Family::ALL {
        let place = Place::with(family);
        let record = reference(family);
        let tokens = serde_json::to_string(&record.tokens).expect("JSON");
        let vocabulary = record.logprobs[0].len().to_string();
        let words = ["logprobs", "tiny.gguf", "--cache-type", "f32", "--top", &vocabulary];
        let rows = json_lines(&place.minfer(&words).stdin(&tokens).stdout());
        for (position, wanted) in record.positions.iter().zip(&record.logprobs) {
            for entry in rows[*position as usize]["top"].as_array().expect("an array") {
                let (id, got) =
                    (entry[0].as_u64().expect("an id") as usize, entry[1].as_f64().expect("a number"));
                assert!((got - f64::from(wanted[id])).abs() < 2e-3, "{} {position} {id}", family.name());
            }
        }
    }
}

#[test]
fn bits_do_not_depend_on_the_machine() {
    let place = Place::new();
    let available = place.minfer(&["doctor", "--json"]).json()["isa_available"].clone();
    let sets: Vec<_> = available.as_array().expect("sets").iter().filter_map(Value::as_str).collect();
    for dtype in [DType::Q4_1, DType::Q4_K, DType::Q6_K, DType::Q8_0, DType::F16] {
        place.write("tiny.gguf", quantised(dtype).to_bytes());
        let run = |flags: &[&str]| {
            let words = [&["logprobs", "tiny.gguf", "--top", "4"], flags].concat();
            place.minfer(&words).stdin(IDS).stdout()
        };
        let wanted = run(&["--isa", "scalar", "-t", "1"]);
        assert_eq!(wanted.lines().count(), 17);
        for set in &sets {
            for others in [["-t", "1", "-b", "512"], ["-t", "3", "-b", "4"]] {
                assert_eq!(
                    run(&[&["--isa", set], &others[..]].concat()),
                    wanted,
                    "{dtype:?} {set} {others:?}"
                );
            }
        }
    }
}

#[test]
fn facts_come_at_the_end_of_stderr() {
    let place = Place::with(Family::Llama);
    let (_, stderr) = place.minfer(&["logprobs", "tiny.gguf", "--facts"]).stdin(IDS).both();
    let facts: Value = serde_json::from_str(stderr.lines().last().expect("a line")).expect("JSON");
    assert!(facts["steps"].as_u64() > Some(0));
}

#[test]
fn ids_that_do_not_fit() {
    let place = Place::with(Family::Llama);
    let run = |flags: &[&str]| place.minfer(&[&["logprobs", "tiny.gguf"], flags].concat());
    has(&run(&[]).stdin("[1, 269]").failure(), &["id 269 at index 1", "vocabulary of 269 tokens"]);
    has(&run(&[]).stdin("[]").failure(), &["no token ids"]);
    has(&run(&[]).stdin("[1, -1]").failure(), &["not a JSON array of token ids"]);
    let refusal = run(&["-c", "8"]).stdin(IDS).failure();
    assert!(
        refusal.starts_with("an array of 17 ids on stdin needs a context of 17 tokens, and -c gives 8"),
        "{refusal}"
    );
    has(&run(&["--top", "270"]).stdin(IDS).failure(), &["270", "269"]);
}
