//! Files of conversations: what they may replace, and whose turns they hold.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin};
use std::time::Duration;

use minfer_testkit::synthetic::Family;

use crate::place::{Place, Run, has};

const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}";
const CHAT: [&str; 9] =
    ["chat", "tiny.gguf", "--ignore-eos", "-n", "4", "--temp", "0", "--chat-template", TEMPLATE];

fn chat(place: &Place, flags: &[&str], typed: &str) -> Run {
    place.minfer(&[&CHAT, flags].concat()).stdin(typed)
}

/// How many messages a file holds.
fn messages(place: &Place, file: &str) -> usize {
    let (_, stderr) = chat(place, &["--session", file], "/stats\n").both();
    let count = stderr.split(" messages").next().and_then(|text| text.rsplit(['\n', ' ']).next());
    count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("{stderr}"))
}

/// A conversation that is held open. Ends when its stdin is dropped.
struct Open {
    child: Child,
    stdin: ChildStdin,
}

impl Open {
    /// Says something and waits for the beginning of the answer.
    fn start(place: &Place, flags: &[&str], typed: &str) -> Open {
        let mut child = place.minfer(&[&CHAT, flags].concat()).start();
        let mut stdin = child.stdin.take().expect("piped");
        stdin.write_all(typed.as_bytes()).expect("written");
        BufReader::new(child.stdout.as_mut().expect("piped"))
            .read_line(&mut String::new())
            .expect("an answer");
        Open { child, stdin }
    }

    fn end(self) -> String {
        drop(self.stdin);
        let output = self.child.wait_with_output().expect("waited for");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        stderr
    }
}

#[cfg(unix)]
#[test]
fn what_is_no_session_file_is_never_replaced() {
    use std::os::unix::fs::{FileTypeExt, symlink};

    let place = Place::with(Family::Llama);
    place.write("notes.txt", "mine");
    symlink("nothing", place.path("dangling")).expect("made");
    place.program("mkfifo").arguments(&["pipe"]).stdout();
    fs::create_dir(place.path("folder")).expect("made");
    for (name, words) in [
        ("notes.txt", "it is not a session file"),
        ("/dev/null", "it is not a regular file"),
        ("pipe", "it is not a regular file"),
        ("dangling", "No such file"),
        ("folder", "it is a folder"),
    ] {
        let saved = chat(&place, &[], &format!("one\n/save {name}\n")).last_error();
        has(&saved, &["cannot be saved to", name, words]);
        // Before a model is looked for: none of this name is there.
        let run = place.minfer(&["run", "none.gguf", "p", "--session", name]).failure();
        let chat = place.minfer(&["chat", "none.gguf", "--session", name]).failure();
        for refusal in [run, chat] {
            has(&refusal, &[name, words]);
        }
        let loaded = chat_load(&place, name);
        assert!(loaded.contains(name) && !loaded.contains("--session"), "{loaded}");
    }
    assert_eq!(fs::read_to_string(place.path("notes.txt")).expect("a file"), "mine");
    assert!(fs::metadata("/dev/null").expect("there").file_type().is_char_device());
    assert!(fs::metadata(place.path("pipe")).expect("there").file_type().is_fifo());
    has(&chat_load(&place, "folder"), &["folder cannot be used: it is a folder"]);
}

#[cfg(unix)]
fn chat_load(place: &Place, name: &str) -> String {
    chat(place, &[], &format!("/load {name}\n")).last_error()
}

#[test]
fn a_folder_that_takes_no_file_is_found_out_before_a_model_is() {
    let place = Place::new();
    for command in [&["run", "none.gguf", "p"][..], &["chat", "none.gguf"]] {
        let refusal = place.minfer(&[command, &["--session", "no/such/a.session"]].concat()).failure();
        has(
            &refusal,
            &["the conversation cannot be saved to no/such/a.session: the folder no/such does not exist"],
        );
        let refusal = place.minfer(&[command, &["--session", "a.session"]].concat()).failure();
        has(&refusal, &["no model `none.gguf`"]);
    }
    assert_eq!(fs::read_dir(place.path("")).expect("a folder").count(), 0, "nothing is left behind");
}

#[test]
fn a_loaded_conversation_leaves_the_other_file_its_own() {
    let place = Place::with(Family::Llama);
    chat(&place, &["--session", "b.session"], "one\ntwo\nthree\n").stdout();
    let (_, stderr) = chat(&place, &["--session", "a.session"], "mine\n/load b.session\nfour\n").both();
    has(
        &stderr,
        &["the conversation before is saved to a.session; this one is saved to b.session at the end"],
    );
    assert_eq!((messages(&place, "a.session"), messages(&place, "b.session")), (2, 8));
    // Its own file brings back what was saved.
    chat(&place, &["--session", "a.session"], "more\n/load a.session\n").stdout();
    assert_eq!(messages(&place, "a.session"), 2);
    // What cannot be loaded changes nothing.
    place.write("c.session", "something else");
    let refusal = chat(&place, &["--session", "a.session"], "more\n/load c.session\n").last_error();
    has(&refusal, &["c.session cannot be used: it is not a session file"]);
    assert_eq!(messages(&place, "a.session"), 4);
    // Without a file of its own a conversation is not saved.
    let before = fs::read(place.path("b.session")).expect("a file");
    chat(&place, &[], "/load b.session\nfive\n").stdout();
    assert!(fs::read(place.path("b.session")).expect("a file") == before);
}

#[test]
fn of_two_conversations_in_one_file_both_are_kept() {
    let place = Place::with(Family::Llama);
    let flags = ["--session", "a.session"];
    for (start, other) in [(2, "a.session.2"), (6, "a.session.3")] {
        let open = Open::start(&place, &flags, "slow\n");
        chat(&place, &flags, "one\ntwo\n").stdout();
        // So that a length alone cannot tell.
        std::thread::sleep(Duration::from_millis(20));
        let stderr = open.end();
        has(
            &stderr,
            &[&format!(
                "a.session was changed by another process meanwhile; this conversation is saved to {other}"
            )],
        );
        assert_eq!((messages(&place, "a.session"), messages(&place, other)), (start + 2, start));
    }
    // Two that begin at once.
    let (first, second) = (
        Open::start(&place, &["--session", "b.session"], "a\n"),
        Open::start(&place, &["--session", "b.session"], "b\n"),
    );
    assert_eq!(first.end(), "");
    has(&second.end(), &["b.session.2"]);
    // `run` would only lose rows.
    let run = ["run", "tiny.gguf", "-f", "-", "--raw", "-n", "1", "--session", "r.session"];
    place.minfer(&[&run[..], &["--temp", "0"]].concat()).stdin("one").stdout();
    let (_, stderr) = place.minfer(&run).stdin("one there").both();
    assert_eq!(stderr, "");
    assert!(!place.path("r.session.2").exists());
}

#[test]
fn saving_to_its_own_file_is_no_change_by_another() {
    let place = Place::with(Family::Llama);
    let (_, stderr) = chat(&place, &["--session", "a.session"], "one\n/save ./a.session\ntwo\n").both();
    assert!(!stderr.contains("another process"), "{stderr}");
    assert_eq!(messages(&place, "a.session"), 4);
    assert!(!place.path("a.session.2").exists());
}

/// A limit of file sizes fails the write and nothing else: one line, the old file, nothing beside
/// it.
#[cfg(target_os = "linux")]
#[test]
fn a_file_that_may_not_grow_keeps_what_it_had() {
    let place = Place::with(Family::Llama);
    let run = "run tiny.gguf 'one there' --raw --ignore-eos --temp 0 --session a.session -n";
    let limited = |line: &str| {
        let line = format!("ulimit -f 8; {line}");
        place.program("sh").arguments(&["-c", &line, env!("CARGO_BIN_EXE_minfer")]).last_error()
    };
    let files = || fs::read_dir(place.path("")).expect("a folder").count();
    let words = "the conversation cannot be saved to a.session: writing it: File too large (os error 27); a larger limit";
    has(&limited(&format!("exec \"$0\" {run} 100")), &[words, "ulimit -f"]);
    assert_eq!(files(), 1, "the model alone");
    place.program("sh").arguments(&["-c", &format!("\"$0\" {run} 2"), env!("CARGO_BIN_EXE_minfer")]).stdout();
    let before = fs::read(place.path("a.session")).expect("saved");
    has(&limited(&format!("exec \"$0\" {run} 100")), &[words]);
    let chat = "printf 'one\ntwo\n/save b.session\n' | \"$0\" chat tiny.gguf --ignore-eos -n 40 --chat-template chatml";
    has(&limited(chat), &["the conversation cannot be saved to b.session: writing it: File too large"]);
    assert_eq!((fs::read(place.path("a.session")).expect("a file"), files()), (before, 2));
    has(
        &limited("exec \"$0\" show tiny.gguf --json > shown"),
        &["the output could not be written: File too large"],
    );
}
