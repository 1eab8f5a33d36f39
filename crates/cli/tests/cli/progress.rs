//! Lines that show how far something has come: seldom enough to be read, and gone whatever ends the
//! program.
#![cfg(target_os = "linux")]

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use minfer_testkit::synthetic::Family;

use crate::place::{Place, Run, has};
use crate::terminal::Talk;

/// Takes the line away in which the cursor is.
const CLEAR: &str = "\r\u{1b}[2K";

/// A pull whose download takes long, then fails.
fn pull(place: &Place) -> Run {
    std::fs::create_dir(place.path("bin")).expect("made");
    place.write("bin/python3", "#!/bin/sh\nsleep 3\necho no network >&2\nexit 1\n");
    std::fs::set_permissions(place.path("bin/python3"), PermissionsExt::from_mode(0o755)).expect("set");
    let path = format!("{}:{}", place.path("bin").display(), std::env::var("PATH").expect("a path"));
    place.minfer(&["pull", "smollm2"]).env("PATH", &path).env("TERM", "xterm")
}

/// A prompt that is read for minutes, in one forward or in many.
fn reading(place: &Place, flags: &[&str]) -> Run {
    place.write("long.txt", "abc def ".repeat(8000));
    let words = ["run", "tiny.gguf", "-f", "long.txt", "--raw", "-c", "65536"];
    let stretch = ["--rope-scaling", "linear", "--rope-scale", "128"];
    place.minfer(&[&words[..], &stretch, flags].concat()).env("TERM", "xterm")
}

#[test]
fn a_signal_takes_away_what_a_pull_shows() {
    for (name, number) in [("-INT", 2), ("-TERM", 15), ("-HUP", 1), ("-QUIT", 3)] {
        let place = Place::new();
        let mut talk = Talk::of(pull(&place));
        talk.until("fetching");
        talk.signal(name);
        let (status, shown) = talk.end();
        assert_eq!(status.signal(), Some(number));
        assert!(shown.ends_with(CLEAR), "{name}: {shown:?}");
    }
}

#[test]
fn an_error_takes_away_what_a_pull_shows() {
    let place = Place::new();
    let mut talk = Talk::of(pull(&place));
    talk.until("fetching");
    let (status, shown) = talk.end();
    assert_eq!(status.code(), Some(1));
    let (before, message) = shown.rsplit_once(CLEAR).expect("taken away");
    assert!(message.starts_with("error: ") && message.contains("no network"), "{before:?} {message:?}");
}

#[test]
fn no_signal_leaves_the_line_of_a_prompt_behind() {
    let place = Place::with(Family::Llama);
    // The first one stops it.
    let mut talk = Talk::of(reading(&place, &["-b", "64"]));
    talk.until("reading the prompt: ");
    talk.signal("-INT");
    let (status, shown) = talk.end();
    assert_eq!(status.code(), Some(130));
    assert!(shown.ends_with(&format!("{CLEAR}interrupted\r\n")), "{shown:?}");
    // The second one ends it while it waits for a forward.
    let mut talk = Talk::of(reading(&place, &["-b", "65536", "--isa", "scalar", "--session", "a.session"]));
    talk.until("reading the prompt");
    talk.signal("-INT");
    talk.until("Ctrl-C again ends without)");
    talk.until("reading the prompt");
    talk.signal("-TERM");
    let (status, shown) = talk.end();
    assert_eq!(status.code(), Some(143));
    assert!(shown.ends_with(CLEAR), "{shown:?}");
}

#[test]
fn a_line_is_drawn_ten_times_a_second_at_most() {
    let place = Place::with(Family::Llama);
    let mut talk = Talk::of(reading(&place, &["-b", "1"]));
    talk.until("reading the prompt: ");
    let shown = talk.for_a_while(Duration::from_secs(3));
    let drawn = shown.matches("reading the prompt").count();
    assert!((3..=31).contains(&drawn), "{drawn}: {shown:?}");
    has(&shown, &[" of ", " tokens"]);
    talk.signal("-INT");
    talk.end();
}
