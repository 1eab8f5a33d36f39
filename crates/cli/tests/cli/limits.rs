//! Limits of the process on threads and open files.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use minfer_testkit::synthetic::Family;

use crate::place::{Place, has};

/// Someone whom the limit of processes holds, unlike root.
const NOBODY: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";

/// A folder with a model and the binary that any user can run there; and what runs a line of `sh`
/// as one whom limits hold.
fn anyones() -> (Place, &'static str) {
    let place = Place::with(Family::Llama);
    fs::copy(env!("CARGO_BIN_EXE_minfer"), place.path("minfer")).expect("copied");
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).expect("set");
    fs::set_permissions(place.path("tiny.gguf"), fs::Permissions::from_mode(0o644)).expect("set");
    let held = place.program("sh").arguments(&["-c", "test $(id -u) -ne 0"]).output().status.success();
    (place, if held { "" } else { NOBODY })
}

#[test]
fn what_needs_no_second_thread_goes_on_without_one() {
    let (place, user) = anyones();
    let works = |line: &str| place.program("sh").arguments(&["-c", line]).output().status.success();
    if !works(&format!("{user} prlimit --nproc=100 ./minfer --version")) {
        println!("skipped: prlimit or setpriv is not there, or may not do its work");
        return;
    }
    if works(&format!("{user} prlimit --nproc=1 sh -c 'sh -c true; exit'")) {
        println!("skipped: this system does not hold anybody to a limit of processes");
        return;
    }
    let alone = |line: &str| {
        let script = format!("exec {user} prlimit --nproc=1 ./minfer {line}");
        place.program("sh").arguments(&["-c", &script]).stdin("{\"text\": \"one\"}\n")
    };
    // The tokenizer is built beside the weights where there is a thread for it.
    let measured = alone("bench tiny.gguf -p 2 -n 0 -r 1 -t 1 -o json").json();
    assert!(measured.to_string().contains("tiny"), "{measured}");
    let refusal = alone("run tiny.gguf one --raw -n 1 -t 1").last_error();
    assert!(refusal.contains("could not be started") && !refusal.contains("bug"), "{refusal}");
    let refusal = alone("run tiny.gguf one -n 1 -t 1 --chat-template chatml").last_error();
    assert!(refusal.contains("thread") && !refusal.contains("bug"), "{refusal}");
    assert!(alone("tokenize tiny.gguf --jsonl").stdout().starts_with("{\"ids\":["));
}

#[test]
fn a_session_that_finds_no_free_file_says_so() {
    let place = Place::with(Family::Llama);
    let refused = |files: u32| {
        let script = format!(
            "ulimit -n {files}; exec \"$0\" run tiny.gguf one --raw --temp 0 -n 1 -t 1 --session a.session"
        );
        let output = place.program("sh").arguments(&["-c", &script, env!("CARGO_BIN_EXE_minfer")]).output();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    // Files that the caller of the tests has left open move the least number that is enough.
    let refusals: Vec<String> =
        (3..256).map(refused).take_while(|(code, _)| *code != Some(0)).map(|(_, text)| text).collect();
    let said = |text: &&String| text.starts_with("error: ");
    let mut in_words = refusals.iter().filter(said);
    assert!(in_words.all(|text| text.contains("Too many open files (os error 24)")), "{refusals:?}");
    let of_session = refusals.iter().find(|text| text.contains("creating a file beside it: "));
    has(of_session.expect("one of them"), &["a.session", "a larger limit of open files (ulimit -n)"]);
}
