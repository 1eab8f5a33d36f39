//! Crafted model files: each ends with one line and exit code 1, soon, in little memory.

use std::time::{Duration, Instant};

use minfer_testkit::synthetic::{Family, ModelFile, Value};

use crate::place::{Place, has};

#[allow(dead_code, reason = "its own tests use more of it")]
#[path = "../../../formats/tests/gguf/raw.rs"]
mod raw;
#[path = "../../../formats/tests/gguf/table.rs"]
mod table;

/// Far more than a refusal takes; a hang is what must be seen, also on a busy machine.
const SOON: Duration = Duration::from_secs(40);

#[test]
fn every_crafted_file_is_refused_in_one_line() {
    let place = Place::new();
    for case in table::bad_files() {
        place.write("bad.gguf", &case.bytes);
        for words in [&["show", "bad.gguf"][..], &["run", "bad.gguf", "p"]] {
            let start = Instant::now();
            let message = place.minfer(words).failure();
            assert!(start.elapsed() < SOON, "{}: {:?}", case.name, start.elapsed());
            has(&message, &["bad.gguf"]);
            has(&message, case.expected);
        }
    }
}

#[test]
fn a_file_that_ends_early_is_refused() {
    let place = Place::new();
    let whole = Family::Llama.model().to_bytes();
    for length in [whole.len() - 1, whole.len() / 2, 4000, 100] {
        place.write("cut.gguf", &whole[..length]);
        place.minfer(&["run", "cut.gguf", "p", "--raw"]).failure();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn four_gigabytes_of_address_space_are_enough_to_refuse() {
    let place = Place::new();
    for case in table::bad_files() {
        place.write("bad.gguf", &case.bytes);
        let script = "ulimit -v 4194304; exec \"$0\" \"$@\"";
        let mut run = place.program("sh");
        run.command.args(["-c", script, env!("CARGO_BIN_EXE_minfer"), "run", "bad.gguf", "p"]);
        has(&run.failure(), case.expected);
    }
}

/// Numbers in the metadata that no memory could follow.
#[cfg(target_os = "linux")]
#[test]
fn huge_numbers_in_metadata_are_refused_in_little_memory() {
    let place = Place::new();
    for (key, value) in [
        ("llama.block_count", u32::MAX),
        ("llama.embedding_length", u32::MAX),
        ("llama.feed_forward_length", 1 << 31),
        ("llama.attention.head_count", u32::MAX),
        ("llama.attention.head_count_kv", 0),
        ("tokenizer.ggml.bos_token_id", u32::MAX),
    ] {
        let mut model = Family::Llama.model();
        model.set(key, value);
        place.write("huge.gguf", model.to_bytes());
        let mut run = place.program("sh");
        let script = "ulimit -v 4194304; exec \"$0\" \"$@\"";
        run.command.args(["-c", script, env!("CARGO_BIN_EXE_minfer"), "run", "huge.gguf", "p", "--raw"]);
        has(&run.failure(), &["huge.gguf"]);
    }
}

/// What a vocabulary lost or what was put into it, and words of the message.
type Damage<'a> = (&'a str, Option<Value>, &'a [&'a str]);

/// Tokens of the tiny model's vocabulary.
const TOKENS: usize = 269;

#[test]
fn damaged_vocabularies_are_refused_in_one_line_that_names_the_key() {
    let scores = |damage: &dyn Fn(&mut Vec<f32>)| {
        let mut scores = vec![-1.0; TOKENS];
        damage(&mut scores);
        Some(Value::F32s(scores))
    };
    let types = |number| Some(Value::I32s([vec![1; TOKENS - 1], vec![number]].concat()));
    let text = |text: &str| Some(Value::Text(text.to_owned()));
    let cases: &[(&str, &[Damage<'_>])] = &[
        (
            "gpt2",
            &[
                ("merges", None, &["merges", "token 256", "9 others"]),
                ("merges", Some(Value::Texts(vec![])), &["merges", "token 256"]),
                ("token_type", types(0), &["token_type", "token 268", "type 0"]),
                ("token_type", types(7), &["token_type", "token 268", "type 7"]),
                ("token_type", types(-1), &["token_type", "token 268", "type -1"]),
                ("token_type", Some(Value::I32s(vec![])), &["token_type", "0 entries", "269 tokens"]),
                ("token_type", Some(Value::I32s(vec![1; 270])), &["token_type", "270 entries", "269 tokens"]),
                ("token_type", text("normal"), &["token_type", "string"]),
                ("scores", scores(&|scores| scores.truncate(268)), &["scores", "268 entries", "269 tokens"]),
                ("scores", Some(Value::F32s(vec![])), &["scores", "0 entries", "269 tokens"]),
                ("precompiled_charsmap", Some(Value::I32s(vec![256])), &["precompiled_charsmap"]),
            ],
        ),
        (
            "llama",
            &[
                ("scores", None, &["scores is missing", "269 tokens"]),
                ("scores", scores(&|scores| scores.push(0.0)), &["scores", "270 entries", "269 tokens"]),
                ("scores", scores(&|scores| scores[7] = f32::NAN), &["scores", "token 7", "NaN"]),
                ("scores", scores(&|scores| scores[0] = f32::INFINITY), &["scores", "token 0", "inf"]),
                ("scores", scores(&|_| {}), &["no token for the bytes", "0x00", "unknown_token_id"]),
            ],
        ),
        (
            "t5",
            &[
                ("scores", None, &["scores is missing", "269 tokens"]),
                (
                    "scores",
                    scores(&|scores| scores[268] = f32::NEG_INFINITY),
                    &["scores", "token 268", "-inf"],
                ),
                ("scores", scores(&|_| {}), &["unknown_token_id is missing"]),
            ],
        ),
        ("bert", &[("merges", None, &["unknown_token_id is missing"])]),
        ("gemma4", &[("add_bos_token", None, &["no token for the bytes", "0x00", "unknown_token_id"])]),
        ("rwkv", &[("merges", None, &["no token for the bytes", "0x00", "unknown_token_id"])]),
    ];
    let place = Place::new();
    for (model, damages) in cases {
        for (key, value, words) in *damages {
            let mut file = Family::Llama.model();
            file.set("tokenizer.ggml.model", *model);
            put(&mut file, &format!("tokenizer.ggml.{key}"), value.clone());
            place.write("bad.gguf", file.to_bytes());
            for command in [&["tokenize", "bad.gguf", "p"][..], &["run", "bad.gguf", "p", "--raw"]] {
                let message = place.minfer(command).failure();
                has(&message, &["bad.gguf"]);
                has(&message, words);
            }
        }
    }
}

fn put(file: &mut ModelFile, key: &str, value: Option<Value>) {
    match value {
        Some(value) => file.set(key, value),
        None if file.metadata.iter().any(|(name, _)| name == key) => file.unset(key),
        None => {}
    }
}

#[test]
fn a_special_token_outside_of_the_vocabulary_is_mended_by_an_override() {
    let place = Place::new();
    for key in ["eos", "bos", "eot", "unknown", "padding"] {
        let mut model = Family::Llama.model();
        model.set(&format!("tokenizer.ggml.{key}_token_id"), 4000_u32);
        place.write("tiny.gguf", model.to_bytes());
        let mended = format!("tokenizer.ggml.{key}_token_id=int:");
        let run = &["run", "tiny.gguf", "the thing", "--raw", "-n", "2", "--temp", "0"][..];
        let tokenize = &["tokenize", "tiny.gguf", "the thing"][..];
        for words in [run, tokenize] {
            let error = place.minfer(words).failure();
            has(
                &error,
                &["token 4000 is outside the vocabulary of 269", &format!("--override-kv {mended}ID")],
            );
            let answer = place.minfer(&[words, &["--override-kv", &format!("{mended}1")]].concat()).stdout();
            assert!(!answer.is_empty(), "{words:?}");
        }
    }
    let tokenize = |entry| place.minfer(&["tokenize", "tiny.gguf", "a", "--override-kv", entry]);
    has(&tokenize("llama.block_count=int:1").usage(), &["--override-kv llama.block_count"]);
    has(
        &tokenize("tokenizer.ggml.eos_tokn_id=int:1").failure(),
        &["did you mean tokenizer.ggml.eos_token_id?"],
    );
    has(&tokenize("tokenizer.ggml.eos_token_id=str:a").failure(), &["int:VALUE"]);
}
