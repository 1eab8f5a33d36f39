//! OpenAI's API against a server on loopback with a tiny model.

mod common;

use common::{Place, Settings, Stream};
use serde_json::{Value, json};

fn chat(more: Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 24, "seed": 7, "ignore_eos": true,
    });
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

fn content(response: &Value) -> &str {
    response["choices"][0]["message"]["content"].as_str().unwrap_or_else(|| panic!("{response}"))
}

#[test]
fn a_stream_is_the_whole_answer_in_pieces() {
    let place = Place::new(Settings::default());
    let whole = place.post("/v1/chat/completions", &chat(json!({})));
    assert_eq!(whole.status, 200, "{}", whole.body);
    let whole = whole.json();
    assert_eq!(whole["object"], "chat.completion");
    assert_eq!(whole["model"], "tiny");
    assert_eq!(whole["usage"]["completion_tokens"], 24);
    assert_eq!(whole["choices"][0]["finish_reason"], "length");
    for include_usage in [false, true] {
        let more = json!({"stream": true, "stream_options": {"include_usage": include_usage}});
        let chunks = Stream::open(&place, "/chat/completions", &chat(more)).all();
        assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
        let pieces = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
        assert_eq!(pieces.collect::<String>(), content(&whole));
        let reasons: Vec<&str> =
            chunks.iter().filter_map(|chunk| chunk["choices"][0]["finish_reason"].as_str()).collect();
        assert_eq!(reasons, ["length"]);
        let usages: Vec<&Value> = chunks.iter().filter(|chunk| chunk["usage"].is_object()).collect();
        assert_eq!(usages.len(), usize::from(include_usage));
        for chunk in usages {
            assert_eq!(chunk["choices"], json!([]));
            assert_eq!(chunk["usage"]["completion_tokens"], 24);
        }
    }
}

#[test]
fn several_answers_share_a_prompt_and_can_be_repeated() {
    let place = Place::new(Settings::default());
    let ask = |more| place.post("/v1/chat/completions", &chat(more)).json();
    let three = ask(json!({"n": 3}));
    let texts = |answers: &Value| -> Vec<String> {
        let choices = answers["choices"].as_array().expect("choices").iter();
        choices.map(|choice| choice["message"]["content"].as_str().expect("text").to_owned()).collect()
    };
    let indices: Vec<u64> =
        three["choices"].as_array().unwrap().iter().map(|choice| choice["index"].as_u64().unwrap()).collect();
    assert_eq!(indices, [0, 1, 2]);
    assert_eq!(texts(&three), texts(&ask(json!({"n": 3}))));
    assert_eq!(texts(&three)[0], texts(&ask(json!({})))[0], "the first is the answer alone");
    assert_ne!(texts(&three)[0], texts(&three)[1]);
    let one = ask(json!({}));
    assert_eq!(three["usage"]["prompt_tokens"], one["usage"]["prompt_tokens"], "the prompt counts once");
    let chunks = Stream::open(&place, "/v1/chat/completions", &chat(json!({"n": 3, "stream": true}))).all();
    for (index, text) in texts(&three).iter().enumerate() {
        let own = chunks.iter().filter(|chunk| chunk["choices"][0]["index"] == index);
        let pieces = own.filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
        assert_eq!(pieces.collect::<String>(), *text);
    }
    let unseeded = |_| content(&ask(json!({"seed": null, "temperature": 2.0}))).to_owned();
    let drawn: std::collections::HashSet<String> = (0..3).map(unseeded).collect();
    assert!(drawn.len() > 1, "without a seed answers differ");
}

#[test]
fn limits_and_stops_are_exact() {
    let place = Place::new(Settings::default());
    let ask = |more| place.post("/v1/chat/completions", &chat(more)).json();
    for tokens in [0, 1, 2] {
        assert_eq!(ask(json!({"max_tokens": tokens}))["usage"]["completion_tokens"], tokens);
    }
    assert_eq!(ask(json!({"max_tokens": null, "n_predict": 3}))["usage"]["completion_tokens"], 3);
    let text = content(&ask(json!({}))).to_owned();
    // A stop string of the middle of the text, over several tokens.
    let middle: Vec<char> = text.chars().collect();
    let stop: String = middle[middle.len() / 2..middle.len() / 2 + 5].iter().collect();
    let before = &text[..text.find(&stop).expect("it is there")];
    for stops in [json!(stop), json!(["not there", stop])] {
        let stopped = ask(json!({"stop": stops}));
        assert_eq!(
            (content(&stopped), stopped["choices"][0]["finish_reason"].as_str()),
            (before, Some("stop"))
        );
    }
}

#[test]
fn log_probabilities_are_finite_and_complete() {
    let place = Place::new(Settings::default());
    let more = json!({"logprobs": true, "top_logprobs": 3, "temperature": 0, "max_tokens": 8});
    let whole = place.post("/v1/chat/completions", &chat(more.clone())).json();
    let entries = whole["choices"][0]["logprobs"]["content"].as_array().expect("entries").clone();
    assert_eq!(entries.len(), 8);
    for entry in &entries {
        assert!(entry["logprob"].as_f64().expect("a number") <= 0.0);
        assert_eq!(entry["top_logprobs"].as_array().expect("alternatives").len(), 3);
        assert_eq!(entry["top_logprobs"][0]["token"], entry["token"], "greedy takes the most probable");
    }
    let mut streamed = chat(more);
    streamed["stream"] = true.into();
    let chunks = Stream::open(&place, "/v1/chat/completions", &streamed).all();
    let of_chunks = chunks.iter().filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array());
    assert_eq!(of_chunks.flatten().cloned().collect::<Vec<Value>>(), entries);

    let body = json!({"prompt": "hello there", "echo": true, "logprobs": 2, "max_tokens": 3, "temperature": 0,
                      "ignore_eos": true});
    let echoed = place.post("/v1/completions", &body).json();
    let choice = &echoed["choices"][0];
    let list = |name: &str| choice["logprobs"][name].as_array().unwrap_or_else(|| panic!("{choice}")).clone();
    let tokens = echoed["usage"]["prompt_tokens"].as_u64().expect("a count") as usize + 3;
    for name in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(list(name).len(), tokens, "{name}: {choice}");
    }
    assert!(list("token_logprobs")[0].is_null() && list("token_logprobs")[1..].iter().all(Value::is_number));
    assert!(choice["text"].as_str().expect("text").starts_with("hello there"));
}

#[test]
fn completions_take_texts_and_ids() {
    let place = Place::new(Settings::default());
    let ids =
        place.post("/tokenize", &json!({"content": "hello", "add_special": true})).json()["tokens"].clone();
    let complete = |prompt: Value| {
        let body = json!({"prompt": prompt, "max_tokens": 6, "temperature": 0, "ignore_eos": true});
        let response = place.post("/v1/completions", &body);
        assert_eq!(response.status, 200, "{}", response.body);
        response.json()
    };
    let text = complete(json!("hello"))["choices"][0]["text"].clone();
    assert_eq!(complete(ids.clone())["choices"][0]["text"], text);
    let both = complete(json!(["hello", "other"]));
    assert_eq!(
        (both["choices"][0]["text"].clone(), both["choices"][1]["index"].clone()),
        (text.clone(), json!(1))
    );
    assert_eq!(complete(json!([ids]))["choices"][0]["text"], text);
    let back = place.post(
        "/detokenize",
        &json!({"tokens": place.post("/tokenize", &json!({"content": "hello"})).json()["tokens"]}),
    );
    assert_eq!(back.json()["content"], "hello");
    let prompt = place.post("/apply-template", &chat(json!({}))).json();
    assert_eq!(prompt["prompt"], "<|bos|>user\nhello<|eos|><|bos|>assistant\n");
}

#[test]
fn wrong_requests_name_the_field() {
    let place = Place::new(Settings::default());
    let message = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    let cases = [
        (chat(json!({"messages": []})), "messages"),
        (chat(json!({"messages": null})), "messages"),
        (chat(json!({"messages": [{"role": "robot", "content": "a"}]})), "messages[0].role"),
        (chat(json!({"messages": [{"content": "a"}]})), "messages[0]"),
        (chat(message(json!(null))), "messages[0].content"),
        (chat(message(json!(5))), "messages[0]"),
        (chat(message(json!([{"type": "image_url", "image_url": {}}]))), "messages[0].content[0]"),
        (chat(json!({"max_tokens": -2})), "max_tokens"),
        (chat(json!({"max_tokens": "many"})), "max_tokens"),
        (chat(json!({"temperature": -1})), "temperature"),
        (chat(json!({"temperature": "hot"})), "temperature"),
        (chat(json!({"top_p": 1.5})), "top_p"),
        (chat(json!({"top_k": -5})), "top_k"),
        (chat(json!({"min_p": 2})), "min_p"),
        (chat(json!({"n": 0})), "n"),
        (chat(json!({"n": 99})), "n"),
        (chat(json!({"stop": [1]})), "stop"),
        (chat(json!({"top_logprobs": 2})), "top_logprobs"),
        (chat(json!({"logprobs": true, "top_logprobs": 21})), "top_logprobs"),
        (chat(json!({"logit_bias": {"x": 1}})), "logit_bias.x"),
        (chat(json!({"samplers": ["nothing"]})), "samplers[0]"),
        (chat(json!({"tool_choice": "required"})), "tool_choice"),
        (chat(json!({"tools": [{"type": "function"}]})), "tools[0]"),
        (chat(json!({"response_format": {"type": "yaml"}})), "response_format.type"),
        (chat(json!({"stream": "yes"})), "stream"),
    ];
    for (body, param) in cases {
        for stream in [false, true] {
            let mut body = body.clone();
            if body["stream"].is_null() {
                body["stream"] = stream.into();
            }
            let response = place.post("/v1/chat/completions", &body);
            let error = &response.json()["error"];
            assert_eq!((response.status, error["param"].as_str()), (400, Some(param)), "{body}: {error}");
            assert_eq!(
                (error["type"].as_str(), error["code"].as_u64()),
                (Some("invalid_request_error"), Some(400))
            );
        }
    }
    let other = place.post("/v1/chat/completions", &chat(json!({"mirostat": 2})));
    assert_eq!((other.status, other.json()["error"]["type"].clone()), (501, json!("not_supported_error")));
    let gap = json!({"prompt": "a", "suffix": "b"});
    assert_eq!(place.post("/v1/completions", &gap).status, 400, "the model fills no gaps");
    assert_eq!(place.post("/infill", &json!({"input_prefix": "a"})).status, 400);
    let raised = place.post("/v1/chat/completions", &chat(message(json!("raise"))));
    assert_eq!(raised.status, 400);
    assert!(raised.body.contains("not this word"), "{}", raised.body);
    for prompt in [json!(null), json!([]), json!(5), json!([-1]), json!([99999]), json!([[]])] {
        let response = place.post("/v1/completions", &json!({"prompt": prompt, "max_tokens": 1}));
        assert_eq!(response.status, 400, "{prompt}: {}", response.body);
    }
}

#[test]
fn bodies_that_are_no_json_are_refused() {
    let small = minfer_server::ServerConfig { port: 0, most_body_bytes: 10_000, ..Default::default() };
    let place = Place::new(Settings { config: small, ..Settings::default() });
    let json_type = ("content-type", "application/json");
    let deep = format!("{{\"messages\": {}{}}}", "[".repeat(2000), "]".repeat(2000));
    let cases = [
        ("{", json_type, 400),
        ("", json_type, 400),
        ("[]", json_type, 400),
        ("{\"messages\": \"\u{1}\"}", json_type, 400),
        (deep.as_str(), json_type, 400),
        ("{}", ("content-type", "text/plain"), 415),
        (&"x".repeat(10_001), json_type, 413),
    ];
    for (body, content_type, status) in cases {
        let response = place.request("POST", "/v1/chat/completions", &[content_type], body);
        assert_eq!(response.status, status, "{body:.60}: {}", response.body);
        assert!(response.json()["error"]["message"].is_string());
    }
    let response = place.get("/v1/nothing");
    assert_eq!((response.status, response.json()["error"]["type"].clone()), (404, json!("not_found_error")));
    let response = place.get("/v1/chat/completions");
    assert_eq!((response.status, response.json()["error"]["code"].clone()), (405, json!(405)));
}

#[test]
fn a_prompt_that_is_too_long_is_refused_with_the_numbers() {
    let place = Place::new(Settings { n_ctx: 256, ..Settings::default() });
    for stream in [false, true] {
        let long =
            chat(json!({"messages": [{"role": "user", "content": "a b c ".repeat(500)}], "stream": stream}));
        let response = place.post("/v1/chat/completions", &long);
        let error = &response.json()["error"];
        assert_eq!((response.status, error["type"].as_str()), (400, Some("exceed_context_size_error")));
        assert!(error["n_prompt_tokens"].as_u64() > Some(256) && error["n_ctx"] == 256, "{error}");
    }
    let end = place.post("/v1/chat/completions", &chat(json!({"max_tokens": 100_000}))).json();
    assert_eq!(end["choices"][0]["finish_reason"], "length");
    assert_eq!(end["usage"]["total_tokens"], 256);
}

#[test]
fn a_second_turn_feeds_only_its_own_tokens() {
    let place = Place::new(Settings::default());
    let first = place.post("/v1/chat/completions", &chat(json!({"temperature": 0}))).json();
    let messages = json!([
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": content(&first)},
        {"role": "user", "content": "and now"},
    ]);
    let second = place.post("/v1/chat/completions", &chat(json!({"messages": messages}))).json();
    let cached = second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().expect("a count");
    assert!(cached >= first["usage"]["prompt_tokens"].as_u64().expect("a count"), "{}", second["usage"]);
    let fresh = chat(json!({"messages": messages, "cache_prompt": false}));
    let fresh = place.post("/v1/chat/completions", &fresh).json();
    assert_eq!(fresh["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    assert_eq!(content(&fresh), content(&second), "the cache changes nothing");
}

#[test]
fn the_document_lists_what_is_served() {
    let place = Place::new(Settings::default());
    let document = place.get("/openapi.json").json();
    let paths = document["paths"].as_object().expect("paths");
    assert!(paths.len() > 30, "{}", paths.len());
    for (path, operations) in paths {
        let path = path.replace("{name}", "tiny").replace("{id}", "0");
        for (method, operation) in operations.as_object().expect("operations") {
            // A body without its required fields is refused, but never as a route that is not there.
            let headers = [("content-type", "application/json")];
            let response = place.request(&method.to_uppercase(), &path, &headers, "{}");
            let required =
                operation["requestBody"]["content"]["application/json"]["schema"]["required"].clone();
            let is_refused = required.as_array().is_some_and(|fields| !fields.is_empty());
            let expected = if is_refused { [400, 400] } else { [200, 400] };
            assert!(
                expected.contains(&response.status),
                "{method} {path}: {} {}",
                response.status,
                response.body
            );
        }
    }
}
