//! Ctrl-C and requests to terminate.
#![cfg(target_os = "linux")]

use std::io::{Read, Write};
use std::ops::{Deref, DerefMut};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use minfer_testkit::synthetic::Family;

use crate::place::{Place, Run};

/// A context far longer than the tiny models' own, so that one forward can take as long as a test
/// needs.
const STRETCH: [&str; 6] = ["-c", "65536", "--rope-scaling", "linear", "--rope-scale", "128"];
/// Far less than what the interrupted work takes, far more than an end at once takes on a busy
/// machine.
const SOON: Duration = Duration::from_secs(40);

/// A program that ends with the test at the latest.
struct Started(Option<Child>);

impl Deref for Started {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().expect("not waited for")
    }
}

impl DerefMut for Started {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().expect("not waited for")
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn started(mut run: Run, stdin: Stdio) -> Started {
    let command = run.command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    Started(Some(command.spawn().expect("started")))
}

fn start(place: &Place, words: &[&str]) -> Started {
    started(place.minfer(words), Stdio::null())
}

/// A `run` whose one forward takes minutes, with the signal handlers in place.
fn deep_in_a_forward(place: &Place, flags: &[&str]) -> Started {
    place.write("long.txt", "abc def ".repeat(8000));
    let words = ["run", "tiny.gguf", "-f", "long.txt", "--raw", "-b", "65536", "--json", "--isa", "scalar"];
    let child = start(place, &[&words[..], &STRETCH, flags].concat());
    wait_for_handlers(&child);
    std::thread::sleep(Duration::from_millis(500));
    child
}

fn wait_for_handlers(child: &Child) {
    let status = format!("/proc/{}/status", child.id());
    let caught = || {
        let text = std::fs::read_to_string(&status).expect("a process");
        let mask = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("a mask").trim();
        u64::from_str_radix(mask, 16).expect("hexadecimal") & 0b10 != 0
    };
    while !caught() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([name, &child.id().to_string()]).status().expect("kill");
    assert!(status.success());
}

/// What is left of a process that must end soon.
fn ended(mut child: Started) -> Output {
    let child = child.0.take().expect("not waited for");
    let (id, start) = (child.id(), Instant::now());
    let (done, end) = channel::<()>();
    let killer = std::thread::spawn(move || {
        if end.recv_timeout(SOON) == Err(RecvTimeoutError::Timeout) {
            let _ = Command::new("kill").args(["-KILL", &id.to_string()]).status();
        }
    });
    let output = child.wait_with_output().expect("waited for");
    drop(done);
    killer.join().expect("no panic");
    assert!(start.elapsed() < SOON, "it went on for {:?}", start.elapsed());
    output
}

#[test]
fn a_long_forward_is_not_waited_for() {
    let place = Place::with(Family::Llama);
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        let child = deep_in_a_forward(&place, &[]);
        signal(&child, name);
        let output = ended(child);
        assert_eq!((output.status.code(), output.stdout.len(), output.stderr.len()), (Some(code), 0, 0));
    }
}

/// With -n -1 a context shift has no bound: far more comes than a context of tokens, and would go
/// on.
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
    let child = deep_in_a_forward(&place, &[]);
    signal(&child, "-INT");
    // Time for the first one to be seen.
    std::thread::sleep(Duration::from_millis(100));
    signal(&child, "-TERM");
    assert_eq!(ended(child).status.code(), Some(143));
}

const SESSION: [&str; 10] =
    ["run", "tiny.gguf", "the", "--raw", "--temp", "0", "--ignore-eos", "--session", "a.session", "-c"];

/// What was answered until then is in the file: the next run computes only the end of its prompt,
/// and answers as if it had computed everything.
#[test]
fn an_interrupted_answer_is_saved() {
    let place = Place::with(Family::Llama);
    let length = || std::fs::metadata(place.path("a.session")).expect("saved").len();
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        // Far more room than the answer fills until then, so that nothing is forgotten.
        let words = [&SESSION[..], &STRETCH[1..]].concat();
        place.minfer(&[&words[..], &["-n", "0"]].concat()).stdout();
        let prompt_alone = length();
        let mut child = start(&place, &[&words[..], &["-n", "-1"]].concat());
        child.stdout.as_mut().expect("piped").read_exact(&mut [0; 64]).expect("the answer begins");
        signal(&child, name);
        let output = ended(child);
        assert_eq!((output.status.code(), output.stderr.len()), (Some(code), 0));
        assert!(length() > prompt_alone + 4 * 512, "rows of 512 bytes of what was answered");
        let prompt = "the thing and one there";
        let again = |flags: &[&str]| {
            let words =
                ["run", "tiny.gguf", prompt, "--raw", "--temp", "0", "-n", "4", "--ignore-eos", "--json"];
            place.minfer(&[&words, &STRETCH[..], flags].concat()).json()
        };
        let saved = again(&["--session", "a.session"]);
        assert!(saved["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64() > Some(0), "{saved}");
        assert_eq!(saved["ids"], again(&[])["ids"]);
        std::fs::remove_file(place.path("a.session")).expect("saved");
    }
}

/// A second signal ends it at once: while it waits for a forward, and while it writes.
#[test]
fn a_second_signal_leaves_the_file_whole() {
    let place = Place::with(Family::Llama);
    let (path, long) = (place.path("a.session"), [&SESSION[..], &STRETCH[1..]].concat());
    place.minfer(&[&long[..], &["-n", "4"]].concat()).stdout();
    let before = std::fs::read(&path).expect("saved");
    let child = deep_in_a_forward(&place, &["--session", "a.session"]);
    signal(&child, "-INT");
    std::thread::sleep(Duration::from_secs(1));
    signal(&child, "-INT");
    assert_eq!(ended(child).status.code(), Some(130));
    assert_eq!(std::fs::read(&path).expect("a file"), before, "nothing was written");
    for pause in [0, 1, 2, 4, 8, 16, 32] {
        let mut child = start(&place, &[&long[..], &["-n", "-1"]].concat());
        child.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("the answer begins");
        signal(&child, "-INT");
        std::thread::sleep(Duration::from_millis(pause));
        // It may have ended by itself.
        let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).stderr(Stdio::null()).status();
        assert_eq!(ended(child).status.code(), Some(130));
        place.minfer(&[&long[..], &["-n", "1"]].concat()).stdout();
    }
}

/// A reader that wants only the beginning costs the conversation nothing.
#[test]
fn an_answer_that_nobody_reads_is_saved() {
    let place = Place::with(Family::Llama);
    let line = format!("\"$0\" {} 512 | head -c 1 > first", SESSION.join(" "));
    place.program("sh").arguments(&["-c", &line, env!("CARGO_BIN_EXE_minfer")]).stdout();
    let saved = place.minfer(&[&SESSION[..], &["512", "-n", "1", "--json"]].concat()).json();
    assert!(saved["usage"]["prompt_tokens_details"]["cached_tokens"].is_u64(), "{saved}");
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

const CHAT: [&str; 8] = [
    "chat",
    "tiny.gguf",
    "--ignore-eos",
    "--temp",
    "0",
    "--chat-template",
    "{{ messages[-1].content }}",
    "-n",
];

fn open_chat(place: &Place, flags: &[&str]) -> (Started, ChildStdin) {
    let mut child = started(place.minfer(&[&CHAT, flags].concat()), Stdio::piped());
    let stdin = child.stdin.take().expect("piped");
    (child, stdin)
}

/// Its stdin stays open: what ends it is the signal.
#[test]
fn a_conversation_that_waits_for_input_ends_and_is_saved() {
    let place = Place::with(Family::Llama);
    for (name, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        for message in ["one\n", "one\n\"\"\"half a mes\n"] {
            let (mut child, mut stdin) = open_chat(&place, &["4", "--session", "a.session"]);
            stdin.write_all(message.as_bytes()).expect("written");
            child.stdout.as_mut().expect("piped").read_exact(&mut [0; 2]).expect("an answer");
            std::thread::sleep(Duration::from_millis(200));
            signal(&child, name);
            assert_eq!(ended(child).status.code(), Some(code), "{name}");
            std::fs::remove_file(place.path("a.session")).expect("saved");
        }
    }
}

#[test]
fn nohup_keeps_a_conversation_when_its_terminal_goes() {
    let place = Place::with(Family::Llama);
    let line = format!(
        "trap '' HUP; exec \"$0\" {} 4",
        CHAT.join(" ").replace("{{ messages[-1].content }}", "chatml")
    );
    let run = place.program("sh").arguments(&["-c", &line, env!("CARGO_BIN_EXE_minfer")]);
    let mut child = started(run, Stdio::piped());
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(b"one\n").expect("written");
    child.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("an answer");
    signal(&child, "-HUP");
    std::thread::sleep(Duration::from_millis(200));
    stdin.write_all(b"two\n").expect("it still reads");
    drop(stdin);
    assert_eq!(ended(child).status.code(), Some(0));
}

/// A message whose one forward takes minutes.
#[test]
fn a_conversation_in_a_long_forward_ends_at_once() {
    let place = Place::with(Family::Llama);
    let flags = [&["4", "-b", "65536", "--isa", "scalar"], &STRETCH[..]].concat();
    let message = format!("{}\n", "abc def ".repeat(8000));
    let talk = |more: &[&str]| {
        let (child, mut stdin) = open_chat(&place, &[&flags, more].concat());
        wait_for_handlers(&child);
        stdin.write_all(message.as_bytes()).expect("written");
        std::thread::sleep(Duration::from_millis(1000));
        (child, stdin)
    };
    for (name, code) in [("-INT", 130), ("-TERM", 143)] {
        let (child, _stdin) = talk(&[]);
        signal(&child, name);
        assert_eq!(ended(child).status.code(), Some(code), "{name}");
    }
    // Rows that are to be saved are waited for, but not by somebody who asks twice.
    let (child, _stdin) = talk(&["--session", "a.session"]);
    signal(&child, "-INT");
    std::thread::sleep(Duration::from_millis(1000));
    signal(&child, "-INT");
    assert_eq!(ended(child).status.code(), Some(130));
    assert!(!place.path("a.session").exists(), "nothing was written");
}
