//! Crafted model files: each ends with one line and exit code 1, soon, in little memory.

use std::time::{Duration, Instant};

use minfer_testkit::synthetic::Family;

use crate::place::{Place, has};

#[allow(dead_code, reason = "its own tests use more of it")]
#[path = "../../../formats/tests/gguf/raw.rs"]
mod raw;
#[path = "../../../formats/tests/gguf/table.rs"]
mod table;

/// Far more than a refusal takes; a hang is what must be seen, also on a busy machine.
const SOON: Duration = Duration::from_secs(5);

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
