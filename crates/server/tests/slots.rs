//! Slots: conversations saved, restored and erased, and kept over the server's end.

mod common;

use std::path::Path;

use common::{Place, Settings, Stream, served, until};
use minfer_server::{ServerConfig, ServerError, Source};
use serde_json::{Value, json};

fn place(slots_file: Option<&Path>, folder: Option<&Path>) -> Place {
    Place::new(settings(slots_file, folder))
}

fn settings(slots_file: Option<&Path>, folder: Option<&Path>) -> Settings {
    let (slots_file, slot_save_path) = (slots_file.map(Path::to_owned), folder.map(Path::to_owned));
    let config = ServerConfig { port: 0, slots_file, slot_save_path, ..ServerConfig::default() };
    Settings { config, ..Settings::default() }
}

/// The prompt that a text is, and more after it.
fn ask(place: &Place, text: &str) -> Value {
    let body = json!({"prompt": text, "max_tokens": 8, "temperature": 0, "ignore_eos": true});
    let answer = place.post("/v1/completions", &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

fn cached(answer: &Value) -> u64 {
    answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a count")
}

fn text_of(answer: &Value) -> &Value {
    &answer["choices"][0]["text"]
}

fn act(place: &Place, slot: &str, action: &str, filename: &str) -> (u16, Value) {
    let answer = place.post(&format!("/slots/{slot}?action={action}"), &json!({"filename": filename}));
    (answer.status, answer.json())
}

const LONG: &str =
    "a conversation that goes on for more than a block of tokens, so that it has whole ones too";

#[test]
fn a_slot_is_saved_erased_and_restored() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = place(None, Some(folder.path()));
    let first = ask(&place, LONG);
    let slots = place.get("/slots").json();
    assert_eq!(slots.as_array().expect("slots").len(), 4);
    let tokens = slots[0]["n_tokens"].as_u64().expect("a count");
    assert_eq!(slots[0]["is_processing"], false);
    assert!(tokens >= 64, "{slots}");
    let (status, saved) = act(&place, "0", "save", "a.bin");
    assert_eq!((status, &saved["n_saved"], &saved["id_slot"]), (200, &json!(tokens), &json!(0)), "{saved}");
    let length = folder.path().join("a.bin").metadata().expect("a file").len();
    assert_eq!(saved["n_written"], length);
    let next = format!("{LONG} and more");
    let expected = ask(&place, &next);
    assert!(cached(&expected) > 64);
    let erase = || (0..4).for_each(|slot| assert_eq!(act(&place, &slot.to_string(), "erase", "").0, 200));
    erase();
    let again = ask(&place, LONG);
    assert_eq!((cached(&again), text_of(&again)), (0, text_of(&first)));
    erase();
    let (status, restored) = act(&place, "2", "restore", "a.bin");
    assert_eq!((status, &restored["n_restored"], &restored["n_read"]), (200, &json!(tokens), &json!(length)));
    assert_eq!(place.get("/slots").json()[2]["n_tokens"], tokens);
    let goes_on = ask(&place, &next);
    assert_eq!((cached(&goes_on), text_of(&goes_on)), (cached(&expected), text_of(&expected)));
}

#[test]
fn what_cannot_be_done_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("foreign"), "some text of somebody's").expect("written");
    let place = self::place(None, Some(folder.path()));
    ask(&place, LONG);
    act(&place, "0", "save", "good");
    let mut bytes = std::fs::read(folder.path().join("good")).expect("a file");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(folder.path().join("damaged"), &bytes).expect("written");
    std::fs::write(folder.path().join("short"), &bytes[..middle]).expect("written");
    for (slot, action, filename, status, words) in [
        ("4", "save", "a", 404, "no slot"),
        ("-1", "erase", "a", 404, "no slot"),
        ("one", "erase", "a", 404, "no slot"),
        ("0", "keep", "a", 400, "save, restore, erase"),
        ("0", "save", "../a", 400, "without folders"),
        ("0", "save", "foreign", 400, "not a session file"),
        ("0", "restore", "foreign", 400, "not a session file"),
        ("0", "restore", "damaged", 400, "damaged"),
        ("0", "restore", "short", 400, "truncated"),
        ("0", "restore", "nowhere", 404, "No such file"),
    ] {
        let (found, error) = act(&place, slot, action, filename);
        let message = error["error"]["message"].as_str().unwrap_or_default();
        assert!(found == status && message.contains(words), "{action} {slot} {filename}: {found} {error}");
    }
    let running = place.endless();
    let slots = place.get("/slots").json();
    let busy = slots.as_array().expect("slots").iter().position(|slot| slot["is_processing"] == true);
    let busy = busy.expect("a slot that runs").to_string();
    for action in ["erase", "restore"] {
        assert_eq!(act(&place, &busy, action, "good").0, 503, "{action}");
    }
    assert_eq!(act(&place, &busy, "save", "running").0, 200, "rows are copied between its steps");
    drop(running);
    until(|| place.metric("minfer_running") == 0);
    let closed = self::place(None, None);
    let (status, error) = act(&closed, "0", "save", "a");
    assert_eq!((status, &error["error"]["type"]), (501, &json!("not_supported_error")));
    assert!(!folder.path().parent().expect("a folder").join("a").exists());
}

/// A stream goes on while the file is written after the end of other requests.
#[test]
fn conversations_outlive_the_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.slots");
    let place = self::place(Some(&path), None);
    let running = place.endless();
    let first = ask(&place, LONG);
    let second = ask(&place, "another conversation");
    until(|| path.exists());
    drop(running);
    place.end().expect("an end");
    assert_eq!(
        std::fs::read_dir(folder.path()).expect("a folder").count(),
        1,
        "no file is left half written"
    );
    let place = self::place(Some(&path), None);
    for (prompt, answer) in [(LONG, first), ("another conversation", second)] {
        let prompt_tokens = answer["usage"]["prompt_tokens"].as_u64().expect("a count");
        let again = ask(&place, prompt);
        assert_eq!((text_of(&again), cached(&again)), (text_of(&answer), prompt_tokens - 1));
    }
}

#[test]
fn a_file_that_cannot_be_used_is_left_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.slots");
    let place = self::place(Some(&path), None);
    ask(&place, LONG);
    place.end().expect("an end");
    let whole = std::fs::read(&path).expect("a file");
    let mut damaged = whole.clone();
    damaged[whole.len() - 100] ^= 1;
    let (trailing, short) = ([&whole[..], b"!"].concat(), whole[..whole.len() - 1].to_vec());
    for (bytes, words) in [
        (b"a letter".to_vec(), "not a session file"),
        (damaged, "damaged"),
        (trailing, "data follows its end"),
        (short, "truncated"),
    ] {
        std::fs::write(&path, &bytes).expect("written");
        let settings = settings(Some(&path), None);
        let source = Source { name: "tiny".to_owned(), load: Box::new(|| Ok(served(4, 16, 2048, None))) };
        let ended = Place::refused(settings, source);
        let ServerError::Load(message) = ended else { panic!("{ended}") };
        assert!(message.contains("--slots-file") && message.contains(words), "{message}");
        assert_eq!(std::fs::read(&path).expect("a file"), bytes);
    }
}

#[test]
fn rows_are_kept_for_the_key_that_they_came_from() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.slots");
    let api_keys = vec!["one".to_owned(), "two".to_owned()];
    let config =
        ServerConfig { port: 0, api_keys, slots_file: Some(path.clone()), ..ServerConfig::default() };
    let ask = |place: &Place, key: &str| {
        let headers =
            [("content-type", "application/json"), ("authorization", &format!("Bearer {key}") as &str)];
        let body = json!({"prompt": LONG, "max_tokens": 2}).to_string();
        cached(&place.request("POST", "/v1/completions", &headers, &body).json())
    };
    let place = Place::new(Settings { config: config.clone(), ..Settings::default() });
    assert_eq!(ask(&place, "one"), 0);
    place.end().expect("an end");
    let place = Place::new(Settings { config, ..Settings::default() });
    assert_eq!(ask(&place, "two"), 0);
    assert!(ask(&place, "one") > 64);
}

#[test]
fn several_models_have_a_file_each() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("slots");
    let sources = || {
        let source = |name: &str| {
            let served_as = name.to_owned();
            let load = move || {
                let mut model = served(2, 8, 2048, None);
                model.name = served_as.clone();
                Ok(model)
            };
            Source { name: name.to_owned(), load: Box::new(load) }
        };
        vec![source("a:1"), source("b")]
    };
    let ask = |place: &Place, model: &str| {
        let body = json!({"model": model, "prompt": LONG, "max_tokens": 2});
        cached(&place.post("/v1/completions", &body).json())
    };
    let place = Place::serving(settings(Some(&path), None), sources());
    assert_eq!((ask(&place, "a:1"), ask(&place, "b")), (0, 0));
    assert_eq!(place.get("/slots?model=b").json().as_array().map(Vec::len), Some(2));
    place.end().expect("an end");
    let files = ["slots.a_1", "slots.b"].map(|name| folder.path().join(name).exists());
    assert_eq!((files, path.exists()), ([true; 2], false));
    let place = Place::serving(settings(Some(&path), None), sources());
    assert!(ask(&place, "b") > 64 && ask(&place, "a:1") > 64);
}

/// Slots are saved while a stream runs, whose text is the one that it has alone.
#[test]
fn a_stream_does_not_notice_that_slots_are_saved() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = self::place(None, Some(folder.path()));
    let body =
        json!({"prompt": LONG, "max_tokens": 400, "temperature": 0, "ignore_eos": true, "stream": true});
    let text = |stream: Stream| -> String {
        let text = |chunk: &Value| chunk["choices"][0]["text"].as_str().unwrap_or_default().to_owned();
        stream.all().iter().map(text).collect()
    };
    let alone = text(Stream::open(&place, "/v1/completions", &body));
    let together = std::thread::scope(|scope| {
        let stream = scope.spawn(|| text(Stream::open(&place, "/v1/completions", &body)));
        let mut saves = 0;
        while !stream.is_finished() {
            assert_eq!(act(&place, "0", "save", "again").0, 200);
            saves += 1;
        }
        assert!(saves > 0);
        stream.join().expect("a text")
    });
    assert_eq!(together, alone);
}
