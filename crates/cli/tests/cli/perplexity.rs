//! `minfer perplexity`.

use minfer_testkit::synthetic::{Family, Value};

use crate::place::{Place, has, json_lines};

#[test]
fn a_text_is_scored_window_by_window() {
    let place = Place::with(Family::Llama);
    place.write("text.txt", "one thing and another there ".repeat(8));
    let words = ["perplexity", "tiny.gguf", "text.txt", "--window", "32"];
    let report = place.minfer(&[&words[..], &["--json"]].concat()).json();
    let (perplexity, nll) = (report["perplexity"].as_f64().unwrap(), report["nll"].as_f64().unwrap());
    assert!((perplexity.ln() - nll).abs() < 1e-9 && perplexity > 1.0);
    let windows = report["windows"].as_u64().unwrap();
    // Tokens 17 to 32 of a window are scored but for the first of them, which position 16 does not
    // predict yet.
    assert_eq!(report["tokens"], windows * 15);
    has(&place.minfer(&words).stdout(), &[&format!("perplexity {perplexity:.4}")]);
    has(&place.minfer(&words).env("MINFER_THREADS", "1").stdout(), &[&format!("{perplexity:.4}")]);
}

/// The first special token after 256 bytes and 10 merges.
const BOS: u64 = 266;

/// Every window starts with the first token of a model that has one, and the positions from its
/// middle on are scored.
#[test]
fn windows_start_as_sequences_do() {
    for adds_bos in [false, true] {
        let place = Place::new();
        let mut model = Family::Llama.model();
        model.set("tokenizer.ggml.add_bos_token", Value::Bool(adds_bos));
        place.write("tiny.gguf", model.to_bytes());
        place.write("text.txt", "one thing and another there ".repeat(4));
        let words = ["tokenize", "tiny.gguf", "--add-special", "--no-parse-special", "--json"];
        let json = place.minfer(&words).stdin("one thing and another there ".repeat(4)).json();
        let ids: Vec<u64> = serde_json::from_value(json).unwrap();
        assert_eq!(ids[0] == BOS, adds_bos, "{ids:?}");
        let (mut sum, mut count) = (0.0, 0u32);
        for window in ids.chunks_exact(32) {
            let mut window = window.to_vec();
            if adds_bos {
                window[0] = BOS;
            }
            let rows = place.minfer(&["logprobs", "tiny.gguf"]).stdin(format!("{window:?}")).stdout();
            for row in &json_lines(&rows)[16..31] {
                sum -= row["next_logprob"].as_f64().unwrap();
                count += 1;
            }
        }
        let words = ["perplexity", "tiny.gguf", "text.txt", "--window", "32", "--json"];
        let report = place.minfer(&words).json();
        assert_eq!(report["tokens"], count);
        assert!((report["nll"].as_f64().unwrap() - sum / f64::from(count)).abs() < 1e-6, "{report}");
    }
}

#[test]
fn texts_that_cannot_be_scored() {
    let place = Place::with(Family::Llama);
    place.write("short.txt", "one");
    place.write("binary", b"\x00\xff");
    let run = |file: &str| place.minfer(&["perplexity", "tiny.gguf", file]).failure();
    place.write("empty.txt", "");
    has(&run("short.txt"), &["short.txt has", "a longer text or a smaller --window"]);
    has(&run("empty.txt"), &["empty.txt is empty", "at least 512 tokens"]);
    has(&run("binary"), &["binary is not UTF-8 text"]);
    has(&run("none.txt"), &["none.txt", "No such file"]);
    has(&run("."), &[". is a folder"]);
    place.minfer(&["perplexity", "tiny.gguf", "short.txt", "--window", "2"]).usage();
    let run = |words: &[&str]| place.minfer(&[&["perplexity", "tiny.gguf", "short.txt"], words].concat());
    assert_eq!(
        run(&["--window", "64", "-c", "32"]).failure(),
        "--window 64 needs a context of 64 tokens, and -c gives 32: give a smaller --window, or a larger -c"
    );
    assert_eq!(
        run(&["--window", "600"]).failure(),
        "--window 600 needs a context of 600 tokens, and the model's has 512: give a smaller --window, or a longer context \
         (--rope-scaling with --rope-scale)"
    );
    let place = Place::with(Family::Gpt2);
    place.write("short.txt", "one");
    let refusal = place.minfer(&["perplexity", "tiny.gguf", "short.txt", "--window", "9999"]).failure();
    assert!(refusal.ends_with(": give a smaller --window"), "learned positions are not stretched: {refusal}");
}
