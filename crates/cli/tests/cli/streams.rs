//! Readers that go away, disks that are full, interrupts.
#![cfg(unix)]

use std::io::Read;
use std::process::{Command, Stdio};

use minfer_testkit::synthetic::Family;

use crate::place::{Place, has};

/// Runs `minfer ARGUMENTS | reader`, and gives minfer's exit code with its stderr.
fn piped_into(place: &Place, arguments: &str, reader: &str) -> (String, String) {
    let script =
        format!("{{ '{}' {arguments}; echo \"code $?\" >&2; }} | {reader}", env!("CARGO_BIN_EXE_minfer"));
    let mut run = place.program("sh");
    run.command.args(["-c", &script]);
    let output = run.stdin("[1,2,3]").output();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let (errors, code) = stderr.rsplit_once("code ").expect("a code");
    (code.trim().to_owned(), errors.to_owned())
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let place = Place::with(Family::Llama);
    for arguments in [
        "list",
        "--help",
        "show tiny.gguf --tensors",
        "show tiny.gguf --graph json",
        "completions bash",
        "doctor --knobs",
        "logprobs tiny.gguf --top 200",
        "run tiny.gguf p --raw --ignore-eos",
        "detokenize tiny.gguf",
    ] {
        // `true` reads nothing; a short pause lets it be gone before anything is written.
        let (code, errors) = piped_into(&place, arguments, "true");
        assert_eq!((code.as_str(), errors.as_str()), ("0", ""), "{arguments}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_a_failure() {
    let place = Place::with(Family::Llama);
    for arguments in [
        "list",
        "doctor",
        "detokenize tiny.gguf 1",
        "show tiny.gguf",
        "show tiny.gguf --json",
        "tokenize tiny.gguf",
        "tokenize tiny.gguf --json",
        "completions zsh",
        "run tiny.gguf p --raw",
        "run tiny.gguf p --raw --json",
        "logprobs tiny.gguf",
        "--help",
        "bench tiny.gguf -p 4 -n 0 -r 1 -t 1",
    ] {
        let script = format!("'{}' {arguments} > /dev/full", env!("CARGO_BIN_EXE_minfer"));
        let mut run = place.program("sh");
        run.command.args(["-c", &script]);
        // A long text of digits, so that what is made of it is written piece by piece.
        let stdin =
            if arguments.starts_with("tokenize") { "1 ".repeat(20_000) } else { "[1,2,3]".to_owned() };
        let refusal = run.stdin(stdin).failure();
        has(
            &refusal,
            &["the output could not be written: No space left", "free some space or write it elsewhere"],
        );
        assert_eq!(refusal.matches("No space left").count(), 1, "{refusal}");
    }
}

#[test]
fn an_interrupt_ends_the_answer_with_130() {
    let place = Place::with(Family::Llama);
    // Far more tokens than there is time for.
    let stretch = ["-c", "65536", "--rope-scaling", "linear", "--rope-scale", "128"];
    let words = [&["run", "tiny.gguf", "p", "--raw", "--ignore-eos"], &stretch[..]].concat();
    let mut run = place.minfer(&words);
    let command = run.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("started");
    let mut stdout = child.stdout.take().expect("piped");
    stdout.read_exact(&mut [0]).expect("a byte of the answer");
    let status = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(status.success());
    stdout.read_to_end(&mut Vec::new()).expect("the rest");
    let output = child.wait_with_output().expect("waited for");
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(130), &b""[..]));
}
