//! `minfer chat`, and conversations in files.

use std::fs;

use minfer_testkit::synthetic::Family;
use serde_json::Value;

use crate::place::{Place, Run};

const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}";

fn chat(place: &Place, flags: &[&str], typed: &str) -> Run {
    let mut words = vec!["chat", "tiny.gguf", "--ignore-eos", "-n", "6"];
    for (flag, value) in [("--chat-template", TEMPLATE), ("--temp", "0")] {
        if !flags.contains(&flag) {
            words.extend([flag, value]);
        }
    }
    words.extend(flags);
    place.minfer(&words).stdin(typed)
}

/// The lines of facts on stderr that tell of an answer.
fn turns(stderr: &str) -> Vec<Value> {
    let facts = stderr.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    facts.filter(|facts| facts["turn"].is_u64()).collect()
}

#[test]
fn a_turn_feeds_what_is_new() {
    let place = Place::with(Family::Llama);
    let (_, stderr) = chat(&place, &["--facts"], "one there\nthe thing\n\nand on\n").both();
    let turns = turns(&stderr);
    assert_eq!(turns.len(), 3);
    assert_eq!(turns[0]["reused_tokens"], 0);
    for pair in turns.windows(2) {
        let before = pair[0]["cache_tokens"].as_u64().unwrap();
        assert!(pair[1]["reused_tokens"].as_u64().unwrap() + 8 >= before, "{pair:?}");
        assert!(pair[1]["fed_tokens"].as_u64() < pair[1]["prompt_tokens"].as_u64());
    }
}

#[test]
fn a_conversation_in_a_file_goes_on_as_if_it_had_never_stopped() {
    let place = Place::with(Family::Llama);
    let whole = chat(&place, &["--seed", "3", "--temp", "1"], "one there\nthe thing\n").stdout();
    let flags = ["--seed", "3", "--temp", "1", "--session", "a.session"];
    let first = chat(&place, &flags, "one there\n").stdout();
    let (second, stderr) =
        chat(&place, &[&flags[..], &["--facts", "-c", "96"]].concat(), "the thing\n").both();
    assert_eq!(format!("{first}{second}"), whole);
    let turns = turns(&stderr);
    assert!(turns[0]["reused_tokens"].as_u64().unwrap() > 8, "{turns:?}");
    assert_eq!(turns[0]["turn"], 2);
}

#[test]
fn a_file_that_cannot_be_used_is_left_as_it_is() {
    let place = Place::with(Family::Llama);
    chat(&place, &["--session", "a.session"], "one there\n").stdout();
    let good = fs::read(place.path("a.session")).unwrap();
    let refused = |flags: &[&str], words: &str| {
        let before = fs::read(place.path("a.session")).unwrap();
        let error = chat(&place, &[&["--session", "a.session"], flags].concat(), "the thing\n").last_error();
        assert!(error.contains(words), "{error}");
        assert_eq!(fs::read(place.path("a.session")).unwrap(), before);
    };
    refused(&["--cache-type", "f32"], "its rows are stored as f16 and f16, this cache holds f32 and f32");
    refused(&["-c", "16"], "it holds");
    refused(&["--rope-scale", "2"], "another model, or with other rope");
    refused(&["--system", "be brief"], "has another system message");
    refused(&["--chat-template", "chatml"], "another chat template");
    for (bytes, words) in [
        (good[..good.len() - 1].to_vec(), "it is truncated"),
        ([&good[..], b"x"].concat(), "data follows its end (bytes: 1)"),
        (b"something else".to_vec(), "it is not a session file"),
        (Vec::new(), "it is not a session file"),
        ([&good[..400], &[good[400] ^ 1], &good[401..]].concat(), "it is damaged"),
    ] {
        place.write("a.session", bytes);
        refused(&[], words);
    }
    place.write("a.session", &good);
    let run = ["run", "tiny.gguf", "hello", "--raw", "-n", "2", "--session", "a.session"];
    let error = place.minfer(&run).last_error();
    assert!(
        error.contains("it was made with another chat template") || error.contains("minfer chat"),
        "{error}"
    );
    let error = chat(&place, &["--session", "no/such/folder/a.session"], "one\n").last_error();
    assert!(error.contains("cannot be saved to no/such/folder/a.session"), "{error}");
}

#[test]
fn run_reuses_the_rows_of_an_equal_beginning() {
    let place = Place::with(Family::Llama);
    let run = |prompt: &str| {
        let flags = ["--raw", "--temp", "0", "-n", "5", "--ignore-eos", "--json", "--session", "b.session"];
        place.minfer(&[&["run", "tiny.gguf", prompt][..], &flags].concat()).json()
    };
    let first = run("one there the thing and");
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let again = run("one there the thing and");
    let prompt = again["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(again["usage"]["prompt_tokens_details"]["cached_tokens"], prompt - 1);
    assert_eq!(again["ids"], first["ids"]);
    let other = run("one there the other");
    assert!(other["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() > 2);
    let alone = [
        "run",
        "tiny.gguf",
        "one there the other",
        "--raw",
        "--temp",
        "0",
        "-n",
        "5",
        "--ignore-eos",
        "--json",
    ];
    assert_eq!(other["ids"], place.minfer(&alone).json()["ids"]);
}

#[test]
fn commands_do_what_help_says() {
    let place = Place::with(Family::Llama);
    let typed = "one there\n/regen\n/save c.session\n/clear\n/stats\n/load c.session\n/stats\n/system be brief\n\"\"\"two\nlines\"\"\"\n//slash\n/exit\nnot read\n";
    let (stdout, stderr) = chat(&place, &[], typed).both();
    let lines: Vec<&str> = stderr.lines().collect();
    assert!(lines[0].starts_with("saved to c.session ("), "{stderr}");
    assert!(lines[1].starts_with("0 messages, 0 tokens"), "{stderr}");
    assert!(lines[2].starts_with("2 messages, "), "{stderr}");
    assert_eq!(lines[2], lines[3]);
    assert!(stdout.lines().count() >= 4, "{stdout}");
    let (_, stderr) = chat(&place, &[], "/help\n").both();
    assert!(stderr.contains("/regen         answer the last message again"));
    for (typed, words) in [
        ("/nope\n", "there is no command /nope"),
        ("/regen\n", "there is no answer to make again"),
        ("/load missing\n", "missing: there is no such file"),
        ("/save no/such/folder\n", "cannot be saved"),
        ("\u{7f}\n/load\n", "/load needs the name of a file"),
    ] {
        let error = chat(&place, &[], typed).last_error();
        assert!(error.contains(words), "{error}");
    }
    let error = place.minfer(&["chat", "tiny.gguf"]).stdin("hello\n").last_error();
    assert!(error.contains("has no chat template"), "{error}");
}

/// A template that prints old messages in another way now and then parts from their rows.
#[test]
fn facts_stay_true_where_the_oldest_messages_are_left_out() {
    let place = Place::with(Family::Llama);
    let template = "{{ messages[0].content }}\n{% for m in messages[1:] %}{{ m.role if messages|length % 8 < 4 else 'x' }}: {{ m.content }}\n{% endfor %}assistant: ";
    let system = "be brief ".repeat(14);
    let flags = ["--chat-template", template, "--system", &system, "--facts", "--context-shift", "-c", "320"];
    let talk =
        |flags: &[&str], turns: usize| chat(&place, flags, &"one there the thing\n".repeat(turns)).both().1;
    let stderr = talk(&flags, 12);
    assert!(stderr.matches("its oldest message is left out").count() > 1, "{stderr}");
    let told = turns(&stderr);
    for (number, turn) in (1..).zip(&told) {
        let tokens = |key: &str| turn[key].as_u64().expect("a count");
        assert_eq!(turn["turn"], number, "{stderr}");
        // What has no row now was forgotten before the turn, in which nothing was.
        assert!(
            tokens("removed_tokens") > 0
                || tokens("reused_tokens") + tokens("fed_tokens") == tokens("prompt_tokens"),
            "{turn}"
        );
        assert!(number == 1 || tokens("reused_tokens") >= 64, "rows of the system message: {stderr}");
    }
    // In a file it goes on.
    let flags = [&flags[..], &["--session", "a.session"]].concat();
    talk(&flags, 11);
    assert_eq!(turns(&talk(&flags, 1))[0]["turn"], 12);
}

#[test]
fn a_context_shift_goes_on_where_the_context_ends() {
    let place = Place::with(Family::Llama);
    let typed = "one there the thing\n".repeat(12);
    let flags = ["-c", "96", "--system", "be brief", "--facts"];
    let refused = chat(&place, &flags, &typed).last_error();
    assert!(refused.contains("no room in a context of 96 tokens; -c gives a larger one"), "{refused}");
    assert!(refused.contains("--context-shift"), "{refused}");
    let (_, cut) = place
        .minfer(&[
            "chat",
            "tiny.gguf",
            "--ignore-eos",
            "--temp",
            "0",
            "--chat-template",
            TEMPLATE,
            "-c",
            "32",
        ])
        .stdin("one\n")
        .both();
    assert!(
        cut.contains("the context of 32 tokens is full; -c gives a larger one; --context-shift"),
        "{cut}"
    );
    let (_, whole) = chat(&place, &["-c", "64"], "one\n").both();
    assert_eq!(whole, "");
    let (_, stderr) = chat(&place, &[&flags[..], &["--context-shift"]].concat(), &typed).both();
    let turns = turns(&stderr);
    assert_eq!(turns.len(), 12);
    let last = turns.last().unwrap();
    assert!(last["removed_tokens"].as_u64().unwrap() > 0, "{last}");
    for pair in turns.windows(2) {
        let rows = pair[0]["cache_tokens"].as_u64().unwrap();
        assert!(pair[1]["reused_tokens"].as_u64().unwrap() <= rows, "{pair:?}");
    }
    assert_eq!(
        turns.iter().map(|turn| turn["turn"].as_u64()).collect::<Vec<_>>(),
        Vec::from_iter((1..13).map(Some))
    );
    let most = turns[1]["fed_tokens"].as_u64().unwrap() + 8;
    assert!(turns.iter().skip(1).all(|turn| turn["fed_tokens"].as_u64().unwrap() <= most), "{turns:?}");
    // Without -n an answer ends all the same.
    let words = ["chat", "tiny.gguf", "--ignore-eos", "--chat-template", TEMPLATE, "--context-shift"];
    let (_, stderr) = place.minfer(&[&words[..], &["-c", "64", "--facts"]].concat()).stdin("one\n").both();
    assert_eq!(self::turns(&stderr)[0]["completion_tokens"], 64);
    let learned = Place::with(Family::Gpt2);
    let error = chat(&learned, &["--context-shift"], "one\n").last_error();
    assert!(error.contains("--context-shift is impossible"), "{error}");
    let error = chat(&place, &["-c", "32", "--context-shift", "--keep", "32"], "one\n").last_error();
    assert!(error.starts_with("--keep: "), "{error}");
    assert!(error.contains("32 tokens that are never forgotten leave no room"), "{error}");
}

#[test]
fn without_the_prefix_cache_a_new_conversation_is_computed_anew() {
    let place = Place::with(Family::Llama);
    let typed = "one there and another thing\n/clear\none there and another thing\n";
    let run = |flags: &[&str]| chat(&place, &[&["--facts"], flags].concat(), typed).both();
    let ((cached, with), (computed, without)) = (run(&[]), run(&["--no-prefix-cache"]));
    assert_eq!(cached, computed);
    assert!(turns(&with)[1]["reused_tokens"].as_u64().unwrap() > 0, "{with}");
    assert_eq!(turns(&without)[1]["reused_tokens"], 0, "{without}");
}
