//! The APIs of Anthropic and Ollama, and OpenAI's responses: shapes, order of events, errors.

mod common;

use common::{Place, Settings};
use minfer_server::ServerConfig;
use serde_json::{Value, json};

fn with(mut body: Value, more: Value) -> Value {
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

/// Events of a whole response: their names and data.
fn events(text: &str) -> Vec<(String, Value)> {
    let event = |block: &str| {
        let (name, data) = block.strip_prefix("event: ")?.split_once("\ndata: ")?;
        Some((name.to_owned(), serde_json::from_str(data).ok()?))
    };
    text.trim().split("\n\n").map(|block| event(block).unwrap_or_else(|| panic!("{block}"))).collect()
}

fn anthropic(more: Value) -> Value {
    with(
        json!({"model": "any", "max_tokens": 12, "temperature": 0, "ignore_eos": true,
               "messages": [{"role": "user", "content": "hello"}]}),
        more,
    )
}

fn tool() -> Value {
    let schema = json!({"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],
                        "additionalProperties": false});
    json!({"name": "pick", "input_schema": schema})
}

#[test]
fn messages_are_answered_whole_and_as_events() {
    let place = Place::new(Settings::default());
    let whole = place.post("/v1/messages", &anthropic(json!({}))).json();
    assert_eq!(
        (&whole["type"], &whole["role"], &whole["stop_reason"]),
        (&json!("message"), &json!("assistant"), &json!("max_tokens"))
    );
    assert_eq!(whole["usage"]["output_tokens"], 12);
    let text = whole["content"][0]["text"].as_str().expect("text");
    let events = events(&place.post("/v1/messages", &anthropic(json!({"stream": true}))).body);
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..2], ["message_start", "content_block_start"]);
    assert_eq!(names[names.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    assert!(events.iter().all(|(name, data)| data["type"] == *name));
    let joined: String = events.iter().filter_map(|(_, data)| data["delta"]["text"].as_str()).collect();
    assert_eq!(joined, text);
    // All of the prompt but its last token was cached by then.
    let usage = &events[events.len() - 2].1["usage"];
    assert_eq!((&usage["output_tokens"], &usage["input_tokens"]), (&json!(12), &json!(1)));
    let counted = place.post("/v1/messages/count_tokens", &anthropic(json!({}))).json();
    assert_eq!(counted["input_tokens"], events[0].1["message"]["usage"]["input_tokens"]);
    let cached = usage["cache_read_input_tokens"].as_u64().expect("a count");
    assert_eq!(counted["input_tokens"].as_u64(), Some(cached + 1));
}

#[test]
fn tools_are_used_and_their_results_taken() {
    let place = Place::new(Settings::default());
    let ask = |more| {
        place.post("/v1/messages", &anthropic(with(json!({"max_tokens": 200, "tools": [tool()]}), more)))
    };
    let one = json!({"tool_choice": {"type": "tool", "name": "pick"}});
    let answer = ask(one.clone()).json();
    assert_eq!(answer["stop_reason"], "tool_use", "{answer}");
    let call = &answer["content"][0];
    assert!(call["type"] == "tool_use" && (call["input"]["a"] == 1 || call["input"]["a"] == 2), "{call}");
    let events = events(&ask(with(one, json!({"stream": true}))).body);
    let joined: String =
        events.iter().filter_map(|(_, data)| data["delta"]["partial_json"].as_str()).collect();
    assert_eq!(serde_json::from_str::<Value>(&joined).expect("JSON"), call["input"]);
    let turn = json!([
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": [{"type": "text", "text": "I pick."}, call]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": "done"}]},
            {"type": "text", "text": "and now?"},
        ]},
    ]);
    let next = ask(json!({"messages": turn, "max_tokens": 4}));
    assert_eq!(next.status, 200, "{}", next.body);
    for (choice, status) in [
        (json!({"type": "any"}), 200),
        (json!({"type": "tool", "name": "none"}), 400),
        (json!({"type": "some"}), 400),
    ] {
        assert_eq!(ask(json!({"tool_choice": choice})).status, status);
    }
}

#[test]
fn each_api_has_its_own_errors() {
    let config = ServerConfig { port: 0, api_keys: vec!["key".into()], ..ServerConfig::default() };
    let place = Place::new(Settings { config, ..Settings::default() });
    let key = [("x-api-key", "key"), ("content-type", "application/json")];
    let ask = |path: &str, body: &str| place.request("POST", path, &key, body);
    let refused = place.request("POST", "/v1/messages", &key[1..], "{}");
    assert_eq!(
        (refused.status, refused.json()["error"]["type"].clone()),
        (401, json!("authentication_error"))
    );
    assert_eq!(refused.json()["type"], "error");
    let refused = place.request("POST", "/api/chat", &key[1..], "{}");
    assert_eq!((refused.status, refused.json()["error"].is_string()), (401, true));
    for body in [
        "{",
        "{}",
        r#"{"max_tokens": 3, "messages": []}"#,
        r#"{"max_tokens": 3, "messages": [{"role": "robot", "content": "a"}]}"#,
        r#"{"max_tokens": 3, "messages": [{"role": "user", "content": [{"type": "image"}]}]}"#,
    ] {
        let response = ask("/v1/messages", body);
        let error = &response.json()["error"];
        assert_eq!(
            (response.status, error["type"].clone()),
            (400, json!("invalid_request_error")),
            "{body}: {error}"
        );
        assert!(error["message"].is_string());
    }
    for (path, body) in [
        ("/api/chat", r#"{"messages": [{"role": "robot", "content": "a"}]}"#),
        ("/api/chat", r#"{"messages": 5}"#),
        ("/api/generate", r#"{"prompt": 5}"#),
        ("/api/generate", r#"{"prompt": "a", "format": 5}"#),
        ("/api/generate", r#"{"prompt": "a", "options": {"temperature": -1}}"#),
    ] {
        let response = ask(path, body);
        assert!(response.status == 400 && response.json()["error"].is_string(), "{body}: {}", response.body);
    }
    for (body, param) in [
        ("{}", "input"),
        (r#"{"input": []}"#, "input"),
        (r#"{"input": [{"type": "image"}]}"#, "input[0]"),
        (r#"{"input": [{"role": "robot", "content": "a"}]}"#, "input[0].role"),
        (r#"{"input": "a", "tools": [{"type": "web_search"}]}"#, "tools[0]"),
        (r#"{"input": "a", "text": {"format": {"type": "yaml"}}}"#, "text.format.type"),
    ] {
        let response = ask("/v1/responses", body);
        assert_eq!(
            (response.status, response.json()["error"]["param"].clone()),
            (400, json!(param)),
            "{}",
            response.body
        );
    }
    assert_eq!(ask("/v1/responses", r#"{"input": "a", "previous_response_id": "x"}"#).status, 501);
    assert_eq!(place.request("GET", "/api/none", &key, "").json()["error"], "there is no route /api/none");
}

#[test]
fn responses_tell_their_course_in_numbered_events() {
    let place = Place::new(Settings::default());
    let body = json!({"input": "hello", "max_output_tokens": 12, "temperature": 0, "ignore_eos": true});
    let whole = place.post("/v1/responses", &body).json();
    assert_eq!(
        (&whole["status"], &whole["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
    let text = whole["output"][0]["content"][0]["text"].as_str().expect("text");
    let events = events(&place.post("/v1/responses", &with(body, json!({"stream": true}))).body);
    let numbers: Vec<u64> =
        events.iter().map(|(_, data)| data["sequence_number"].as_u64().expect("a number")).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    let names: Vec<&str> = events.iter().map(|(name, _)| name.trim_start_matches("response.")).collect();
    assert_eq!(names[..4], ["created", "in_progress", "output_item.added", "content_part.added"]);
    assert_eq!(
        names[names.len() - 4..],
        ["output_text.done", "content_part.done", "output_item.done", "incomplete"]
    );
    let joined: String = events
        .iter()
        .filter(|(name, _)| name.ends_with("text.delta"))
        .filter_map(|(_, data)| data["delta"].as_str())
        .collect();
    assert_eq!(joined, text);
    assert_eq!(events[events.len() - 1].1["response"]["output"][0]["content"][0]["text"], text);
}

#[test]
fn ollama_answers_line_by_line() {
    let place = Place::new(Settings::default());
    let options = json!({"num_predict": 9, "temperature": 0, "ignore_eos": true});
    for (path, more, text) in [
        ("/api/chat", json!({"messages": [{"role": "user", "content": "hello"}]}), "/message/content"),
        ("/api/generate", json!({"prompt": "hello"}), "/response"),
        ("/api/generate", json!({"prompt": "hello", "raw": true}), "/response"),
    ] {
        let body = with(json!({"options": options}), more);
        let whole = place.post(path, &with(body.clone(), json!({"stream": false}))).json();
        assert_eq!(
            (&whole["done"], &whole["done_reason"], &whole["eval_count"]),
            (&json!(true), &json!("length"), &json!(9))
        );
        let streamed = place.post(path, &body);
        assert_eq!(streamed.header("content-type"), Some("application/x-ndjson"));
        let lines: Vec<Value> =
            streamed.body.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let pieces = lines.iter().filter_map(|line| line.pointer(text).and_then(Value::as_str));
        assert_eq!(Some(pieces.collect::<String>().as_str()), whole.pointer(text).and_then(Value::as_str));
        assert!(lines[..lines.len() - 1].iter().all(|line| line["done"] == false));
        assert_eq!(lines[lines.len() - 1]["eval_count"], 9);
    }
    let schema = json!({"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": false});
    let formed = place.post(
        "/api/chat",
        &json!({"messages": [{"role": "user", "content": "hello"}], "format": schema, "stream": false}),
    );
    let content: Value =
        serde_json::from_str(formed.json()["message"]["content"].as_str().expect("text")).expect("JSON");
    assert!(content["a"] == 1 || content["a"] == 2);
    for path in ["/api/tags", "/api/ps"] {
        assert_eq!(place.get(path).json()["models"][0]["name"], "tiny");
    }
    assert_eq!(place.post("/api/show", &json!({"model": "tiny"})).json()["details"]["family"], "llama");
    assert!(place.get("/api/version").json()["version"].is_string());
    assert_eq!(
        place.post("/api/generate", &json!({"model": "tiny", "prompt": ""})).json()["done_reason"],
        "load"
    );
}
