//! Ctrl-C and requests to terminate.
#![cfg(target_os = "linux")]

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use minfer_testkit::synthetic::Family;

use crate::place::Place;

/// A context far longer than the tiny models' own, so that one forward can take as long as a test needs.
const STRETCH: [&str; 6] = ["-c", "65536", "--rope-scaling", "linear", "--rope-scale", "128"];
/// Far less than what the interrupted work takes, far more than an end at once takes on a busy machine.
const SOON: Duration = Duration::from_secs(10);

fn start(place: &Place, words: &[&str]) -> Child {
    let mut run = place.minfer(words);
    let command = run.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("started")
}

/// A `run` whose one forward takes minutes, with the signal handlers in place.
fn deep_in_a_forward(place: &Place) -> Child {
    place.write("long.txt", "abc def ".repeat(8000));
    let words = ["run", "tiny.gguf", "-f", "long.txt", "--raw", "-b", "65536", "--json", "--isa", "scalar"];
    let child = start(place, &[&words[..], &STRETCH].concat());
    let status = format!("/proc/{}/status", child.id());
    let caught = || {
        let text = std::fs::read_to_string(&status).expect("a process");
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask").trim();
        u64::from_str_radix(mask, 16).expect("hexadecimal") & 0b10 != 0
    };
    while !caught() {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    child
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill");
    assert!(status.success());
}

/// What is left of a process that must end soon.
fn ended(child: Child) -> Output {
    let start = Instant::now();
    let output = child.wait_with_output().expect("waited for");
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    output
}

#[test]
fn a_long_forward_is_not_waited_for() {
    let place = Place::with(Family::Llama);
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        let child = deep_in_a_forward(&place);
        signal(&child, name);
        let output = ended(child);
        assert_eq!((output.status.code(), output.stdout.len(), output.stderr.len()), (Some(code), 0, 0));
    }
}

/// With -n -1 a context shift has no bound: far more comes than a context of tokens, and would go on.
#[test]
fn an_answer_without_end_is_interrupted() {
    let place = Place::with(Family::Llama);
    let words =
        ["run", "tiny.gguf", "the", "--raw", "--ignore-eos", "-c", "16", "--context-shift", "-n", "-1"];
    let mut child = start(&place, &words);
    let mut text = vec![0; 512];
    child.stdout.as_mut().expect("piped").read_exact(&mut text).expect("an answer without end");
    signal(&child, "-INT");
    assert_eq!(ended(child).status.code(), Some(130));
}

#[test]
fn of_two_signals_the_last_one_counts() {
    let place = Place::with(Family::Llama);
    let child = deep_in_a_forward(&place);
    signal(&child, "-INT");
    // Time for the first one to be seen.
    std::thread::sleep(Duration::from_millis(100));
    signal(&child, "-TERM");
    assert_eq!(ended(child).status.code(), Some(143));
}

#[test]
fn what_measures_dies_without_half_an_answer() {
    let place = Place::with(Family::Llama);
    place.write("text.txt", "one thing and another there ".repeat(4000));
    let bench =
        [&["bench", "tiny.gguf", "-p", "60000", "-n", "0", "-o", "json", "-b", "65536"], &STRETCH[..]]
            .concat();
    let perplexity =
        [&["perplexity", "tiny.gguf", "text.txt", "--window", "20000", "--json"], &STRETCH[..]].concat();
    for words in [bench, perplexity] {
        for (name, number) in [("-INT", 2), ("-TERM", 15)] {
            let child = start(&place, &words);
            std::thread::sleep(Duration::from_millis(300));
            signal(&child, name);
            let output = ended(child);
            assert_eq!(
                (output.status.signal(), output.stdout.as_slice()),
                (Some(number), &b""[..]),
                "{words:?}"
            );
        }
    }
}
