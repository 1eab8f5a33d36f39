//! `minfer serve` as a process: where it listens, how it ends.
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command};

use minfer_testkit::synthetic::Family;
use serde_json::{Value, json};

use crate::place::Place;

/// A context far longer than the tiny models' own, for answers that no test waits for.
const STRETCH: [&str; 6] = ["-c", "65536", "--rope-scaling", "linear", "--rope-scale", "128"];

/// A server that ends with the test at the latest.
struct Server {
    child: Child,
    stderr: BufReader<ChildStderr>,
    address: String,
}

impl Server {
    /// Starts it and waits until it is ready.
    fn new(place: &Place, flags: &[&str]) -> Server {
        let words = [&["serve", "tiny.gguf", "--port", "0"], flags].concat();
        let mut child = place.minfer(&words).start();
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let mut server = Server { child, stderr, address: String::new() };
        let mut line = String::new();
        while !line.contains(" is ready: ") {
            line.clear();
            assert!(server.stderr.read_line(&mut line).expect("text") > 0, "it ended before it was ready");
            if let Some((_, host)) = line.trim().split_once("listening on http://") {
                server.address = host.to_owned();
            }
        }
        server
    }

    fn send(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("connected");
        let head = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
        let kind = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all([&head, &kind, body].concat().as_bytes()).expect("sent");
        stream
    }

    /// Status line and body.
    fn request(&self, method: &str, path: &str, body: &str) -> (String, String) {
        let mut text = String::new();
        self.send(method, path, body).read_to_string(&mut text).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        (head.lines().next().expect("a status").to_owned(), body.to_owned())
    }

    /// An answer that does not end, after its first chunk.
    fn endless(&self) -> BufReader<TcpStream> {
        let body = json!({"prompt": "abc", "max_tokens": 60_000, "ignore_eos": true, "stream": true});
        let mut stream = BufReader::new(self.send("POST", "/v1/completions", &body.to_string()));
        let mut line = String::new();
        while !line.starts_with("data: ") {
            line.clear();
            assert!(stream.read_line(&mut line).expect("text") > 0, "no chunk");
        }
        stream
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().expect("kill").success());
    }

    /// Waits for its end: exit code and the rest of stderr.
    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).expect("text");
        (self.child.wait().expect("waited for").code(), rest)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_model_is_served_until_a_signal_comes() {
    let place = Place::with(Family::Llama);
    let server = Server::new(&place, &["--model-name", "mine"]);
    let (status, models) = server.request("GET", "/v1/models", "");
    let models: Value = serde_json::from_str(&models).expect("JSON");
    assert_eq!((status.as_str(), &models["data"][0]["id"]), ("HTTP/1.1 200 OK", &json!("mine")));
    let body = json!({"prompt": "abc", "max_tokens": 3, "temperature": 0, "ignore_eos": true});
    let (_, answer) = server.request("POST", "/v1/completions", &body.to_string());
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let run = ["run", "tiny.gguf", "abc", "--raw", "-n", "3", "--temp", "0", "--ignore-eos", "--json"];
    let run = place.minfer(&run).json();
    assert_eq!(answer["choices"][0]["text"], run["text"], "the text of `minfer run`");
    server.signal("-TERM");
    let (code, stderr) = server.end();
    assert_eq!(code, Some(0), "{stderr}");
}

#[test]
fn a_second_signal_ends_at_once() {
    let place = Place::with(Family::Llama);
    let server = Server::new(&place, &[&STRETCH[..], &["--drain-timeout", "100000"]].concat());
    let _running = server.endless();
    server.signal("-INT");
    while !server.request("GET", "/health", "").0.contains("503") {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let (status, _) = server.request("POST", "/v1/completions", r#"{"prompt": "abc"}"#);
    assert!(status.contains("503"), "{status}");
    server.signal("-INT");
    let (code, stderr) = server.end();
    assert_ne!(code, Some(0), "{stderr}");
}

#[test]
fn a_place_that_is_taken_is_an_error() {
    let place = Place::with(Family::Llama);
    let server = Server::new(&place, &[]);
    let port = server.address.rsplit(':').next().expect("a port");
    let error = place.minfer(&["serve", "tiny.gguf", "--port", port]).failure();
    assert!(error.contains(port) && error.contains("in use"), "{error}");
    let error = place.minfer(&["serve", "none.gguf", "--port", "0"]).failure();
    assert!(error.contains("none.gguf"), "{error}");
    let error = place.minfer(&["serve", "tiny.gguf", "--model-name", "a,b"]).output();
    assert_eq!(error.status.code(), Some(2), "a name too many");
    place.write("keys", "# none\n\n");
    let error = place.minfer(&["serve", "tiny.gguf", "--port", "0", "--api-key-file", "keys"]).failure();
    assert!(error.contains("keys has no key"), "{error}");
}

#[test]
fn a_conversation_and_a_measurement_go_to_a_server() {
    let place = Place::with(Family::Llama);
    let server = Server::new(&place, &["--chat-template", "chatml", "--api-key", "secret"]);
    let url = format!("http://{}/v1", server.address);
    let flags = ["--temp", "0", "-n", "6", "--system", "be brief"];
    let chat = |words: &[&str]| {
        let typed = "hello\n/regen\n/clear\nhello\n";
        place.minfer(&[&["chat"], words, &flags].concat()).env("MINFER_API_KEY", "secret").stdin(typed)
    };
    let remote = chat(&["--url", &url]).stdout();
    let lines: Vec<&str> = remote.lines().collect();
    assert!(lines.len() >= 3 && remote.len() % 3 == 0, "{remote:?}");
    let third = &remote[..remote.len() / 3];
    assert_eq!(remote, third.repeat(3), "greedy answers to the same messages");
    assert_eq!(
        remote,
        chat(&["tiny.gguf", "--chat-template", "chatml"]).stdout(),
        "the answers of the model"
    );
    let refused = place.minfer(&["chat", "--url", &url]).stdin("hello\n").failure();
    assert!(refused.contains("key"), "{refused}");
    let words = ["bench", "--serve", &url, "-p", "9", "-n", "5", "-r", "1", "--streams", "1,3", "-o", "json"];
    let rows = place.minfer(&words).env("MINFER_API_KEY", "secret").json();
    assert_eq!(rows.as_array().map(Vec::len), Some(2), "{rows}");
    for (row, streams) in rows.as_array().expect("rows").iter().zip([1, 3]) {
        assert_eq!(
            (&row["streams"], &row["prompt"], &row["answer"]),
            (&json!(streams), &json!(9), &json!(5))
        );
        assert!(row["tok_s"].as_f64() > Some(0.0) && row["ttft_ms"].as_f64() > Some(0.0), "{row}");
    }
    let table = place.minfer(&words[..words.len() - 2]).env("MINFER_API_KEY", "secret").stdout();
    assert!(table.starts_with("| streams |") && table.lines().count() == 4, "{table}");
    let nobody = place.minfer(&["bench", "--serve", "http://127.0.0.1:1"]).failure();
    assert!(nobody.contains("127.0.0.1:1"), "{nobody}");
}

/// What `kill -9` leaves is a whole file: the next server feeds only what it has not seen.
#[test]
fn a_killed_server_goes_on_with_its_conversations() {
    let place = Place::with(Family::Llama);
    let flags = ["--slots-file", "kept.slots", "-c", "512"];
    let ask = |server: &Server, prompt: &str| -> Value {
        let body = json!({"prompt": prompt, "max_tokens": 6, "temperature": 0, "ignore_eos": true});
        serde_json::from_str(&server.request("POST", "/v1/completions", &body.to_string()).1).expect("JSON")
    };
    let cached = |answer: &Value| answer["usage"]["prompt_tokens_details"]["cached_tokens"].clone();
    let prompts = ["a first conversation", "a second one"];
    let server = Server::new(&place, &flags);
    let file = place.path("kept.slots");
    let length = || std::fs::metadata(&file).map_or(0, |file| file.len());
    let answers = prompts.map(|prompt| {
        let (before, answer) = (length(), ask(&server, prompt));
        while length() <= before {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        answer
    });
    server.signal("-KILL");
    let _ = server.end();
    let server = Server::new(&place, &flags);
    for (prompt, answer) in prompts.iter().zip(&answers) {
        let tokens = answer["usage"]["prompt_tokens"].as_u64().expect("a count");
        let again = ask(&server, prompt);
        assert_eq!(cached(&again), tokens - 1, "all but the last one: {again}");
        assert_eq!(again["choices"], answer["choices"]);
    }
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
    std::fs::write(&file, "a letter").expect("written");
    let refused = place.minfer(&[&["serve", "tiny.gguf", "--port", "0"], &flags[..]].concat()).last_error();
    assert!(refused.contains("kept.slots: it is not a session file"), "{refused}");
}
