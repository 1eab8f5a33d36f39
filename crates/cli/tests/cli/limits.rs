//! Limits of the process on threads and open files.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use minfer_testkit::synthetic::Family;

use crate::place::{Place, has};

/// Someone whom the limit of processes holds, unlike root.
const NOBODY: &str = "setpriv --reuid=65534 --regid=65534 --clear-groups";

/// A folder with a model and the binary that any user can run there; and what runs a line of `sh` as one whom limits hold.
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
    assert_eq!(
        alone("tokenize tiny.gguf --jsonl").failure(),
        "a thread could not be started: Resource temporarily unavailable (os error 11); a larger limit of processes \
         (ulimit -u) may help"
    );
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
    let refusals: Vec<String> =
        (3..8).map(refused).filter(|(code, _)| *code == Some(1)).map(|(_, text)| text).collect();
    assert!(refusals.iter().all(|text| text.contains("Too many open files (os error 24)")), "{refusals:?}");
    let of_session = refusals.iter().find(|text| text.contains("creating a file beside it: "));
    has(of_session.expect("one of them"), &["a.session", "a larger limit of open files (ulimit -n)"]);
}
