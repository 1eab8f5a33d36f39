//! `minfer perplexity`.

use minfer_testkit::synthetic::Family;

use crate::place::{Place, has};

#[test]
fn a_text_is_scored_window_by_window() {
    let place = Place::with(Family::Llama);
    place.write("text.txt", "one thing and another there ".repeat(8));
    let words = ["perplexity", "tiny.gguf", "text.txt", "--window", "32"];
    let report = place.minfer(&[&words[..], &["--json"]].concat()).json();
    let (perplexity, nll) = (report["perplexity"].as_f64().unwrap(), report["nll"].as_f64().unwrap());
    assert!((perplexity.ln() - nll).abs() < 1e-9 && perplexity > 1.0);
    let windows = report["windows"].as_u64().unwrap();
    assert_eq!(report["tokens"], windows * 16);
    has(&place.minfer(&words).stdout(), &[&format!("perplexity {perplexity:.4}")]);
    has(&place.minfer(&words).env("MINFER_THREADS", "1").stdout(), &[&format!("{perplexity:.4}")]);
}

#[test]
fn texts_that_cannot_be_scored() {
    let place = Place::with(Family::Llama);
    place.write("short.txt", "one");
    place.write("binary", b"\x00\xff");
    let run = |file: &str| place.minfer(&["perplexity", "tiny.gguf", file]).failure();
    has(&run("short.txt"), &["short.txt has", "--window"]);
    has(&run("binary"), &["binary is not UTF-8 text"]);
    has(&run("none.txt"), &["none.txt", "No such file"]);
    has(&run("."), &[". is a folder"]);
    place.minfer(&["perplexity", "tiny.gguf", "short.txt", "--window", "1"]).usage();
}
