//! `minfer tokenize` and `minfer detokenize`.

use std::io::{BufRead, BufReader, Write};
use std::sync::mpsc::channel;
use std::time::Duration;

use minfer_testkit::synthetic::Family;
use serde_json::json;

use crate::place::{Place, has, json_lines};

#[test]
fn text_to_ids_and_back() {
    let place = Place::with(Family::Qwen2);
    for text in ["the thing", "  two\nlines\t", "größer 日本 👍🏽", "\u{0}\u{7f}", "<|eos|> as text"]
    {
        let ids = place.minfer(&["tokenize", "tiny.gguf", "--json"]).stdin(text).stdout();
        assert_eq!(place.minfer(&["detokenize", "tiny.gguf"]).stdin(&ids).stdout(), text, "{ids}");
    }
}

#[test]
fn special_tokens_as_flags_say() {
    let place = Place::with(Family::Llama);
    let ids = |flags: &[&str]| {
        let words = [&["tokenize", "tiny.gguf", "the<|eos|>", "--json"], flags].concat();
        place.minfer(&words).json()
    };
    assert_eq!(ids(&[]), json!([257, 267]));
    assert_eq!(ids(&["--no-parse-special"]).as_array().map(Vec::len), Some(8));
    let detokenize =
        |flags: &[&str]| place.minfer(&[&["detokenize", "tiny.gguf", "257", "267"], flags].concat()).stdout();
    assert_eq!(detokenize(&[]), "the<|eos|>");
    assert_eq!(detokenize(&["--hide-special"]), "the");
}

#[test]
fn ids_with_their_pieces() {
    let place = Place::with(Family::Llama);
    let shown = place.minfer(&["tokenize", "tiny.gguf", "the\n"]).stdout();
    assert_eq!(shown, "    257  \"the\"\n     10  \"\\n\"\n");
    assert_eq!(place.minfer(&["tokenize", "tiny.gguf", ""]).stdin("not read").stdout(), "");
}

#[test]
fn lines_of_json() {
    let place = Place::with(Family::Llama);
    let input = concat!(
        "{\"text\":\"the\",\"add_special\":false,\"parse_special\":true}\n",
        "\n",
        "{\"text\":\"<|eos|>\",\"parse_special\":true}\n",
        "{\"text\":\"\"}\n",
    );
    let output = place.minfer(&["tokenize", "tiny.gguf", "--jsonl"]).stdin(input).stdout();
    assert_eq!(json_lines(&output), [json!({"ids": [257]}), json!({"ids": [267]}), json!({"ids": []})]);
}

#[test]
fn lines_of_json_back_to_text() {
    let place = Place::with(Family::Llama);
    let input = "{\"ids\":[257,10]}\n\n{\"ids\":[]}\n{\"ids\":[267]}\n";
    let detokenize = |flags: &[&str]| {
        place.minfer(&[&["detokenize", "tiny.gguf", "--jsonl"], flags].concat()).stdin(input)
    };
    let output = json_lines(&detokenize(&[]).stdout());
    assert_eq!(output, [json!({"text": "the\n"}), json!({"text": ""}), json!({"text": "<|eos|>"})]);
    let output = json_lines(&detokenize(&["--hide-special"]).stdout());
    assert_eq!(output[2], json!({"text": ""}));
}

#[test]
fn many_lines_keep_their_order_up_to_the_first_that_fails() {
    let place = Place::with(Family::Llama);
    let mut input: String = (0..20_000).map(|line| format!("{{\"text\":\"{line}\"}}\n")).collect();
    let ids = place.minfer(&["tokenize", "tiny.gguf", "--jsonl"]).stdin(input.as_str()).stdout();
    let texts = place.minfer(&["detokenize", "tiny.gguf", "--jsonl"]).stdin(ids.as_str()).stdout();
    let expected: Vec<_> = (0..20_000).map(|line| json!({"text": line.to_string()})).collect();
    assert_eq!(json_lines(&texts), expected);
    input.push_str("{\"text\":1}\n");
    let output = place.minfer(&["tokenize", "tiny.gguf", "--jsonl"]).stdin(input.as_str()).output();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), ids, "what came before is answered");
    has(&String::from_utf8(output.stderr).unwrap(), &["line 20001 of stdin", "expected a string"]);
}

/// A program that waits for an answer before it writes its next line gets one.
#[test]
fn lines_are_answered_while_stdin_stays_open() {
    let place = Place::with(Family::Llama);
    let mut child = place.minfer(&["tokenize", "tiny.gguf", "--jsonl"]).start();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (sender, answers) = channel();
    std::thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
    });
    for (line, answer) in [("{\"text\":\"the\"}\n", "{\"ids\":[257]}"), ("{\"text\":\"\"}\n", "{\"ids\":[]}")]
    {
        input.write_all(line.as_bytes()).unwrap();
        assert_eq!(answers.recv_timeout(Duration::from_secs(60)).unwrap(), answer);
    }
    input.write_all(b"{\"text\":1}\n").unwrap();
    // Stdin is still open, and the failure ends the program.
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn lines_that_are_no_objects_are_refused_with_one_place() {
    let place = Place::with(Family::Llama);
    let failure = |command: &str, line: &str| {
        place.minfer(&[command, "tiny.gguf", "--jsonl"]).stdin(format!("\n{line}\n")).failure()
    };
    for line in ["[\"the\"]", "[\"the\",true,false]", "\"the\"", "1", "null", "hello"] {
        let message = failure("tokenize", line);
        has(&message, &["line 2 of stdin: not a JSON object", "{\"text\": \"hi\"}"]);
        assert_eq!(message.matches("line").count(), 1, "{message}");
    }
    has(&failure("detokenize", "[[1,2]]"), &["line 2 of stdin: not a JSON object", "{\"ids\": [1, 2]}"]);
    for (line, words) in [
        ("{\"text\":1}", "line 2 of stdin: column 9: invalid type: integer `1`, expected a string"),
        ("{\"text\":\"the\"", "line 2 of stdin: column 13: EOF while parsing an object"),
        ("{}", "line 2 of stdin: column 2: missing field `text`"),
    ] {
        let message = failure("tokenize", line);
        has(&message, &[words]);
        assert_eq!(message.matches("line").count(), 1, "{message}");
    }
    let broken = place.minfer(&["tokenize", "tiny.gguf", "--jsonl"]).stdin(b"{\"text\":\"\xff\"}\n");
    has(&broken.failure(), &["line 1 of stdin: not UTF-8 text: byte 9"]);
}

#[test]
fn a_line_that_is_far_too_long_is_refused() {
    let place = Place::with(Family::Llama);
    let line = format!("{{\"text\":\"the\"}}\n{{\"text\":\"{}\"}}", "a".repeat(17 << 20));
    let output = place.minfer(&["tokenize", "tiny.gguf", "--jsonl"]).stdin(line).output();
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b"{\"ids\":[257]}\n"[..]));
    has(&String::from_utf8(output.stderr).unwrap(), &["line 2 of stdin", "more than 16777216 bytes"]);
}

#[test]
fn a_word_that_no_context_could_hold_is_refused_with_numbers() {
    let place = Place::with(Family::Llama);
    let word = "a".repeat(9 << 20);
    let tokenized = place.minfer(&["tokenize", "tiny.gguf", "--json"]).stdin(&word).failure();
    has(&tokenized, &["a word of 9437184 bytes", "at most 8388608"]);
    let run = place.minfer(&["run", "tiny.gguf", "--raw"]).stdin(&word).failure();
    has(&run, &["the prompt of 9437184 bytes has at least", "the context has"]);
}

#[test]
fn input_that_cannot_be_read() {
    let place = Place::with(Family::Llama);
    let tokenize = |flags: &[&str]| place.minfer(&[&["tokenize", "tiny.gguf"], flags].concat());
    let detokenize = |ids: &[&str]| place.minfer(&[&["detokenize", "tiny.gguf"], ids].concat());
    has(
        &tokenize(&["--jsonl"]).stdin("{\"text\":1}\n").failure(),
        &["line 1 of stdin: column 9: invalid type", "expected a string"],
    );
    has(&tokenize(&["--jsonl"]).stdin("hello\n").failure(), &["line 1 of stdin"]);
    has(&tokenize(&[]).stdin(b"\xff").failure(), &["stdin is not UTF-8"]);
    tokenize(&["text", "--jsonl"]).usage();
    detokenize(&["1", "--jsonl"]).usage();
    has(
        &detokenize(&["--jsonl"]).stdin("{\"ids\":[269]}").failure(),
        &["line 1 of stdin", "id 269 at index 0"],
    );
    has(&detokenize(&["1", "99999"]).failure(), &["id 99999 at index 1", "269 tokens"]);
    has(&detokenize(&[]).stdin("[1, 269]").failure(), &["id 269 at index 1"]);
    for text in ["", "[1,", "[-1]", "[1.5]", "[4294967296]", "{}", "x"] {
        has(&detokenize(&[]).stdin(text).failure(), &["stdin is not a JSON array of token ids"]);
    }
    has(
        &detokenize(&[]).stdin("[1, 2, -1]").failure(),
        &["such as [1, 2]: invalid value: integer `-1`", "column 9"],
    );
    has(&detokenize(&["x"]).usage(), &["'x' for '[IDS]...': invalid digit"]);
    has(&detokenize(&["-1"]).usage(), &["-1 is not in 0..="]);
    has(&detokenize(&["4294967296"]).usage(), &["4294967296"]);
}
