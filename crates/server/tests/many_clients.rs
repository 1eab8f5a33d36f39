//! Clients that come, wait, go, and are turned away.

mod common;

use std::io::Read;
use std::time::Duration;

use common::{ENDLESS, Place, Response, Settings, Stream, until};
use minfer_server::ServerConfig;
use serde_json::{Value, json};

/// Room for endless answers.
fn endless(n_slots: u32, queue: usize) -> Settings {
    Settings { n_slots, queue, n_ctx: ENDLESS + 1000, ..Settings::default() }
}

fn hello(more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "temperature": 0,
                          "ignore_eos": true});
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

#[test]
fn a_full_queue_is_one_refusal_before_any_header() {
    let place = Place::new(endless(1, 0));
    let running = place.endless();
    for stream in [false, true] {
        let refused = place.post("/v1/chat/completions", &hello(json!({"stream": stream})));
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{}", refused.body);
        assert_eq!(refused.json()["error"]["type"], "unavailable_error");
    }
    drop(running);
    until(|| place.post("/v1/chat/completions", &hello(json!({}))).status == 200);
}

#[test]
fn clients_that_go_leave_nothing_behind() {
    let place = Place::new(endless(1, 16));
    let alone = place.post("/v1/chat/completions", &hello(json!({}))).json();
    let live = || place.metric("minfer_running") + place.metric("minfer_queue_depth");
    // While it decodes, as a stream.
    drop(place.endless());
    until(|| live() == 0);
    // While it waits for its whole answer, in decode and in a long prefill.
    let long = "a b c d ".repeat(3000);
    for content in ["hello", &long] {
        let body = hello(json!({"messages": [{"role": "user", "content": content}], "max_tokens": ENDLESS}));
        let headers = [("content-type", "application/json")];
        let stream = place.send("POST", "/v1/chat/completions", &headers, &body.to_string());
        until(|| live() == 1);
        drop(stream);
        until(|| live() == 0);
    }
    // In the queue, behind one that runs.
    let running = place.endless();
    for stream in [false, true] {
        let body = hello(json!({"max_tokens": ENDLESS, "stream": stream}));
        let headers = [("content-type", "application/json")];
        let waiting = place.send("POST", "/v1/chat/completions", &headers, &body.to_string());
        until(|| live() == 2);
        drop(waiting);
        until(|| live() == 1);
    }
    drop(running);
    until(|| live() == 0 && place.metric("minfer_kv_blocks_live") == 0);
    let again = place.post("/v1/chat/completions", &hello(json!({}))).json();
    assert_eq!(again["choices"], alone["choices"]);
}

#[test]
fn answers_beside_others_are_those_alone() {
    let place = Place::new(endless(4, 16));
    let body = |index: usize| {
        let content = format!("{} tell", "word ".repeat(7 * index));
        hello(json!({"messages": [{"role": "user", "content": content}], "max_tokens": 40, "temperature": 1,
                     "seed": index}))
    };
    let ask = |index| place.post("/v1/chat/completions", &body(index)).json()["choices"].clone();
    let alone: Vec<Value> = (0..8).map(ask).collect();
    let running = place.endless();
    let together = std::thread::scope(|scope| {
        let ask = &ask;
        let asked: Vec<_> = (0..8).map(|index| scope.spawn(move || ask(index))).collect();
        asked.into_iter().map(|answer| answer.join().expect("an answer")).collect::<Vec<Value>>()
    });
    drop(running);
    assert_eq!(together, alone);
}

#[test]
fn a_reader_that_stalls_delays_nobody() {
    let place = Place::new(endless(2, 16));
    let stalled = place.endless();
    let answers: Vec<u16> =
        (0..20).map(|_| place.post("/v1/chat/completions", &hello(json!({}))).status).collect();
    assert_eq!(answers, [200; 20]);
    drop(stalled);
    until(|| place.metric("minfer_running") == 0);
}

#[test]
fn keys_are_asked_for() {
    let config =
        ServerConfig { port: 0, api_keys: vec!["one".into(), "two".into()], ..ServerConfig::default() };
    let place = Place::new(Settings { config, ..Settings::default() });
    let ask = |headers: &[(&str, &str)]| {
        let headers = [headers, &[("content-type", "application/json")]].concat();
        place.request("POST", "/v1/chat/completions", &headers, &hello(json!({})).to_string())
    };
    for headers in [&[][..], &[("authorization", "Bearer three")], &[("authorization", "one")]] {
        let refused = ask(headers);
        assert_eq!(
            (refused.status, refused.json()["error"]["type"].clone()),
            (401, json!("authentication_error"))
        );
    }
    for path in ["/metrics", "/props", "/v1/models", "/nothing"] {
        assert_eq!(place.get(path).status, 401, "{path}");
    }
    assert_eq!(place.get("/health").status, 200);
    let cached =
        |response: &Response| response.json()["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    let one = [("authorization", "Bearer one")];
    assert_eq!(cached(&ask(&one)), Some(0));
    assert!(cached(&ask(&one)) > Some(0), "its own rows are reused");
    assert_eq!(cached(&ask(&[("x-api-key", "two")])), Some(0), "another key's are not");
}

#[test]
fn a_model_that_loads_is_waited_for() {
    let (release, place) = Place::loading(Settings::default());
    assert_eq!(
        (place.get("/health").status, place.get("/v1/models").json()["data"].clone()),
        (503, json!([]))
    );
    for stream in [false, true] {
        let refused = place.post("/v1/chat/completions", &hello(json!({"stream": stream})));
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    }
    drop(release);
    place.wait_until_ready();
    assert_eq!(place.post("/v1/chat/completions", &hello(json!({}))).status, 200);
}

#[test]
fn a_server_that_ends_lets_running_answers_end() {
    let mut place = Place::new(Settings { n_ctx: 2048, ..Settings::default() });
    let mut running =
        Stream::open(&place, "/v1/chat/completions", &hello(json!({"stream": true, "max_tokens": 1500})));
    running.next().expect("it runs");
    place.stop();
    let chunks = running.all();
    let last = chunks.last().expect("an end");
    assert_eq!(last["choices"][0]["finish_reason"], "length", "{last}");
    place.end().expect("it ends");
}

#[test]
fn answers_that_outlast_the_drain_timeout_are_cancelled() {
    let config =
        ServerConfig { port: 0, drain_timeout: Duration::from_millis(50), ..ServerConfig::default() };
    let mut place = Place::new(Settings { config, ..endless(2, 4) });
    let mut running = place.endless();
    place.stop();
    // The stream ends, with an error or with the connection.
    while running.next().is_some() {}
    place.end().expect("it ends");
}

#[test]
fn a_request_that_never_ends_is_no_trouble() {
    let config =
        ServerConfig { port: 0, read_timeout: Duration::from_millis(200), ..ServerConfig::default() };
    let place = Place::new(Settings { config, ..Settings::default() });
    let headers = [("content-type", "application/json"), ("content-length", "1000")];
    let mut stream = place.send("POST", "/v1/chat/completions", &headers, "{");
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    assert_eq!(place.post("/v1/chat/completions", &hello(json!({}))).status, 200);
}
