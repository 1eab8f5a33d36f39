//! Answers of a given form: the tiny model has no sense, so the form is all that holds.

mod common;

use common::{Place, Settings, Stream};
use serde_json::{Value, json};

fn ask(place: &Place, more: Value) -> Value {
    let response = place.post("/v1/chat/completions", &body(more));
    assert_eq!(response.status, 200, "{}", response.body);
    response.json()
}

fn body(more: Value) -> Value {
    let mut body =
        json!({"messages": [{"role": "user", "content": "hello"}], "temperature": 1.5, "max_tokens": 400});
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

fn text(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "colour": {"enum": ["red", "green"]},
            "count": {"type": "integer", "minimum": 3, "maximum": 77},
            "flags": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
        },
        "required": ["colour", "count", "flags"],
        "additionalProperties": false,
    })
}

fn assert_fits(value: &Value) {
    assert!(["red", "green"].iter().any(|colour| value["colour"] == *colour), "{value}");
    assert!((3..=77).contains(&value["count"].as_i64().expect("a count")), "{value}");
    let flags = value["flags"].as_array().expect("a list");
    assert!((1..=3).contains(&flags.len()) && flags.iter().all(Value::is_boolean), "{value}");
    assert_eq!(value.as_object().map(serde_json::Map::len), Some(3));
}

fn tool(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": schema()}})
}

#[test]
fn answers_fit_their_schema() {
    let place = Place::new(Settings::default());
    for seed in 0..6 {
        let named = json!({"name": "thing", "strict": true, "schema": schema()});
        for more in [
            json!({"seed": seed, "response_format": {"type": "json_schema", "json_schema": named}}),
            json!({"seed": seed, "response_format": {"type": "json_object", "schema": schema()}}),
            json!({"seed": seed, "guided_json": schema()}),
            json!({"seed": seed, "structured_outputs": {"json": schema().to_string()}}),
        ] {
            let answer = ask(&place, more);
            assert_eq!(answer["choices"][0]["finish_reason"], "stop", "{answer}");
            assert_fits(&serde_json::from_str(text(&answer)).expect("JSON"));
        }
    }
    // An object of any kind may go on for long.
    let any = ask(&place, json!({"response_format": {"type": "json_object"}, "max_tokens": 50, "seed": 3}));
    assert!(text(&any).trim_start().starts_with('{'), "{any}");
}

#[test]
fn several_answers_and_streams_keep_the_form() {
    let place = Place::new(Settings::default());
    let format = json!({"type": "json_schema", "json_schema": {"name": "thing", "schema": schema()}});
    let more = json!({"n": 3, "seed": 5, "response_format": format, "logprobs": true, "top_logprobs": 2});
    let whole = ask(&place, more.clone());
    let mut streamed = body(more);
    streamed["stream"] = true.into();
    let chunks = Stream::open(&place, "/v1/chat/completions", &streamed).all();
    for index in 0..3 {
        let answer = whole["choices"][index]["message"]["content"].as_str().expect("text");
        assert_fits(&serde_json::from_str(answer).expect("JSON"));
        let own = chunks.iter().filter(|chunk| chunk["choices"][0]["index"] == index);
        let pieces = own.filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str());
        assert_eq!(pieces.collect::<String>(), answer);
    }
}

#[test]
fn regular_expressions_choices_and_grammars_hold() {
    let place = Place::new(Settings::default());
    for seed in 0..6 {
        let digits = ask(&place, json!({"seed": seed, "guided_regex": "[0-9]{3}-[0-9]{2}"}));
        let (before, after) = text(&digits).split_once('-').expect("a dash");
        assert!((before.len(), after.len()) == (3, 2) && before.bytes().all(|byte| byte.is_ascii_digit()));
        let choice = ask(&place, json!({"seed": seed, "guided_choice": ["yes", "no \"really\""]}));
        assert!(["yes", "no \"really\""].contains(&text(&choice)), "{choice}");
        let grammar = "start: \"a\" (\"b\" | \"c\")+ \"d\"";
        let lark = ask(&place, json!({"seed": seed, "grammar": grammar, "max_tokens": 2000}));
        let middle = text(&lark).strip_prefix('a').and_then(|rest| rest.strip_suffix('d')).expect("a...d");
        assert!(!middle.is_empty() && middle.bytes().all(|byte| b"bc".contains(&byte)));
    }
    let body = json!({"prompt": "abc", "guided_regex": "(north|south)", "temperature": 1.0});
    let text = place.post("/v1/completions", &body).json()["choices"][0]["text"].clone();
    assert!(text == "north" || text == "south", "{text}");
}

#[test]
fn forced_calls_have_arguments_that_fit() {
    let place = Place::new(Settings::default());
    for seed in 0..6 {
        let tools = json!([tool("paint"), tool("count_all")]);
        for (choice, names) in [
            (json!("required"), &["paint", "count_all"][..]),
            (json!({"type": "function", "function": {"name": "count_all"}}), &["count_all"]),
        ] {
            let more =
                json!({"seed": seed, "tools": tools, "tool_choice": choice, "parallel_tool_calls": false});
            let answer = ask(&place, more.clone());
            let choice = &answer["choices"][0];
            assert_eq!(
                (&choice["finish_reason"], &choice["message"]["content"]),
                (&json!("tool_calls"), &Value::Null)
            );
            let calls = choice["message"]["tool_calls"].as_array().expect("calls");
            assert_eq!(calls.len(), 1);
            let function = &calls[0]["function"];
            assert!(names.iter().any(|name| function["name"] == *name), "{function}");
            let arguments = function["arguments"].as_str().expect("text");
            assert_fits(&serde_json::from_str(arguments).expect("JSON"));
            assert!(calls[0]["id"].as_str().is_some_and(|id| id.starts_with("call_")));

            let mut streamed = body(more);
            streamed["stream"] = true.into();
            let chunks = Stream::open(&place, "/v1/chat/completions", &streamed).all();
            let deltas: Vec<&Value> =
                chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]["tool_calls"][0]).collect();
            let named: Vec<&Value> =
                deltas.iter().map(|call| &call["function"]["name"]).filter(|name| name.is_string()).collect();
            assert_eq!(named, [&function["name"]]);
            let joined: String =
                deltas.iter().filter_map(|call| call["function"]["arguments"].as_str()).collect();
            assert_eq!(joined, arguments);
            assert!(deltas.len() > 4, "the arguments come in pieces");
        }
    }
}

#[test]
fn forms_that_cannot_be_kept_are_refused() {
    let place = Place::new(Settings::default());
    let schema = |schema: Value| json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}});
    let cases = [
        (schema(json!({"type": "nothing"})), "response_format"),
        (schema(json!({"type": "object", "properties": {"a": false}, "required": ["a"]})), "response_format"),
        (schema(json!({"$ref": "#/$defs/none"})), "response_format"),
        (json!({"guided_regex": "(("}), "response_format"),
        (json!({"grammar": "start: nothing"}), "response_format"),
        (json!({"grammar": "root ::= \"a\""}), "response_format"),
        (json!({"response_format": {"type": "json_schema"}}), "response_format.json_schema.schema"),
        (
            json!({"tool_choice": "required", "tools": [{"type": "function", "function": {"name": "a", "parameters": {"type": "none"}}}]}),
            "tools",
        ),
    ];
    for (more, field) in cases {
        let response = place.post("/v1/chat/completions", &body(more));
        assert_eq!(
            (response.status, response.json()["error"]["param"].as_str()),
            (400, Some(field)),
            "{}",
            response.body
        );
    }
    // The server goes on.
    assert_fits(
        &serde_json::from_str(text(&ask(&place, json!({"guided_json": self::schema()})))).expect("JSON"),
    );
}

#[test]
fn hostile_forms_end_no_server() {
    let place = Place::new(Settings::default());
    let deep = |open: &str, close: &str| format!("{}a{}", open.repeat(60_000), close.repeat(60_000));
    let mut nested = json!({"type": "string"});
    for _ in 0..100 {
        nested = json!({"type": "array", "items": nested});
    }
    let names: Vec<String> = (0..3000).map(|index| format!("word{index}")).collect();
    let forms = [
        json!({"guided_regex": deep("(", ")")}),
        json!({"guided_regex": "(a*)*b{1,100000}"}),
        json!({"grammar": format!("start: {}", deep("(", ")").replace('a', "\"a\""))}),
        json!({"grammar": "start: (\"a\"*)*"}),
        json!({"grammar": "start: e\ne: e \"+\" e | \"1\""}),
        json!({"grammar": "start: start"}),
        json!({"grammar": ""}),
        json!({"guided_json": nested}),
        json!({"guided_json": {"type": "string", "pattern": "^(?=a)b"}}),
        json!({"guided_json": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}}}),
        json!({"guided_json": {"type": "object", "properties": {}}}),
        json!({"guided_json": {"type": "string", "maxLength": 65_536}}),
        json!({"guided_json": {"enum": names}}),
        json!({"guided_json": {"$defs": {"x": {"enum": ["a"]}}, "type": "array", "items": {"$ref": "#/$defs/x"}}}),
        json!({"guided_json": {"$ref": "#"}}),
        json!({"guided_json": {"not": {"type": "string"}}}),
        json!({"guided_json": {"if": {"type": "string"}, "then": {"minLength": 2}}}),
        json!({"guided_json": {"type": "object", "patternProperties": {"^a": {"type": "integer"}}}}),
        json!({"guided_json": true}),
        json!({"guided_json": 5}),
    ];
    for form in forms {
        let response =
            place.post("/v1/chat/completions", &body(crate::with(form.clone(), json!({"max_tokens": 8}))));
        let shown: String = form.to_string().chars().take(120).collect();
        assert!(matches!(response.status, 200 | 400), "{shown}: {} {}", response.status, response.body);
    }
    // One wrong tool is named; the others are not to blame.
    let wrong = json!({"type": "function", "function": {"name": "b", "parameters": {"type": "nothing"}}});
    let refused = place
        .post("/v1/chat/completions", &body(json!({"tools": [tool("a"), wrong], "tool_choice": "required"})));
    assert_eq!(refused.status, 400);
    assert_fits(
        &serde_json::from_str(text(&ask(&place, json!({"guided_json": self::schema()})))).expect("JSON"),
    );
}

fn with(mut body: Value, more: Value) -> Value {
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}
