//! `minfer bench`.

use minfer_testkit::synthetic::Family;
use serde_json::Value;

use crate::place::{Place, has};

#[test]
fn rows_as_json_csv_and_markdown() {
    let place = Place::with(Family::Llama);
    let words = ["bench", "tiny.gguf", "-p", "8,16", "-n", "4", "-d", "0,8", "-r", "1", "-t", "1"];
    let run = |format: &str| place.minfer(&[&words[..], &["-o", format]].concat());
    let rows = run("json").json();
    let names: Vec<_> =
        rows.as_array().expect("rows").iter().map(|row| row["test"].as_str().unwrap()).collect();
    assert_eq!(names, ["pp8", "pp16", "tg4", "pp8", "pp16", "tg4"]);
    for row in rows.as_array().expect("rows") {
        for key in ["tok_s", "of_limit", "int8_gops", "read_gbs", "load_s"] {
            assert!(row[key].as_f64() > Some(0.0), "{key}: {row}");
        }
        for key in ["depth", "n", "threads", "file_weight_bytes", "packed_weight_bytes", "kv_bytes_per_token"]
        {
            assert!(row[key].is_u64(), "{key}: {row}");
        }
    }
    let csv = run("csv").stdout();
    let columns: Vec<_> = csv.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(columns, vec![rows[0].as_object().map_or(0, serde_json::Map::len); 7]);
    let table = run("md").stdout();
    has(&table, &["tiny.gguf: 1 thread,", "| test | depth | tokens/s | of limit |", "| tg4 | 8 |"]);
}

/// The parts add up to the whole.
#[test]
fn a_profile_adds_up() {
    let place = Place::with(Family::Llama);
    let words = ["bench", "tiny.gguf", "-p", "40", "-n", "3", "-r", "1", "-t", "2", "--profile"];
    let rows = place.minfer(&[&words[..], &["-o", "json"]].concat()).json();
    for row in rows.as_array().expect("rows") {
        let parts = row["profile"].as_array().expect("a profile");
        let share = |part: &Value| part["busy"].as_f64().unwrap() + part["waiting"].as_f64().unwrap();
        let sum: f64 = parts.iter().map(share).sum();
        assert!((sum - 1.0).abs() < 0.01, "{sum}: {row}");
        assert!(parts.len() > 4 && share(&parts[0]) > 0.05, "{row}");
    }
    let table = place.minfer(&words).stdout();
    has(&table, &["pp40, depth 0", "| step | count | us each | busy | waiting |", "| outside of steps |"]);
}

#[test]
fn tests_that_cannot_be_run() {
    let place = Place::with(Family::Llama);
    let run = |words: &[&str]| place.minfer(&[&["bench", "tiny.gguf", "-r", "1"], words].concat());
    has(&run(&["-p", "0", "-n", "0"]).usage(), &["nothing to measure"]);
    for (words, wanted) in [
        (
            &["-p", "9999", "-n", "0"][..],
            "-p 9999 needs a context of 9999 tokens, and the model's has 512: give a smaller -p or -d",
        ),
        (
            &["-p", "0", "-n", "9", "-d", "600"],
            "-n 9 after -d 600 needs a context of 609 tokens, and the model's has 512",
        ),
        (
            &["-p", "16777216", "-d", "16777216", "-n", "0"],
            "-p 16777216 after -d 16777216 needs a context of 33554432",
        ),
        (
            &["-p", "9,99", "-c", "64"],
            "-p 99 needs a context of 99 tokens, and -c gives 64: give a smaller -p or -d, or a larger -c",
        ),
        (
            &["-p", "500", "-n", "0", "--kv-memory", "128k"],
            "-p 500 needs a context of 500 tokens, and --kv-memory allows",
        ),
    ] {
        let refusal = run(words).last_error();
        assert!(refusal.starts_with(wanted), "{refusal}");
    }
    run(&["-p", "4294967295"]).usage();
    run(&["-o", "xml"]).usage();
    assert!(matches!(run(&["-p", "8", "-n", "0", "-c", "64", "-o", "json"]).json(), Value::Array(_)));
}
