//! What only a real model shows.

mod common;

use common::{Place, Settings};
use serde_json::{Value, json};

fn qwen() -> Place {
    let real = Some("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf");
    Place::new(Settings { real, n_ctx: 4096, ..Settings::default() })
}

#[test]
#[ignore = "reads a real model: run by `cargo xtask test`"]
fn a_gap_in_a_program_is_filled() {
    let place = qwen();
    let (before, after) = ("def add(first, second):\n    return ", "\n\nprint(add(1, 2))\n");
    let greedy = json!({"temperature": 0, "max_tokens": 12, "stop": "\n"});
    let with = |mut body: Value| {
        greedy.as_object().expect("fields").iter().for_each(|(name, value)| body[name] = value.clone());
        body
    };
    let filled = place.post("/infill", &with(json!({"input_prefix": before, "input_suffix": after}))).json();
    assert_eq!(filled["content"], "first + second", "{filled}");
    let body = with(json!({"prompt": before, "suffix": after}));
    assert_eq!(place.post("/v1/completions", &body).json()["choices"][0]["text"], "first + second");
    let body = json!({"prompt": before, "suffix": after, "stream": false,
                      "options": {"temperature": 0, "num_predict": 12, "stop": ["\n"]}});
    assert_eq!(place.post("/api/generate", &body).json()["response"], "first + second");
    let files = json!([{"filename": "names.py", "text": "LIMIT = 17\n"}]);
    let body = with(json!({"input_prefix": before, "input_suffix": after, "input_extra": files}));
    let evaluated = |answer: &Value| answer["tokens_evaluated"].as_u64().expect("a count");
    assert!(evaluated(&place.post("/infill", &body).json()) > evaluated(&filled) + 10);
}

#[test]
#[ignore = "reads a real model: run by `cargo xtask test`"]
fn text_of_users_is_no_markup_and_no_byte_is_lost() {
    let place = qwen();
    let prompt = |content: &str| {
        let body = json!({"messages": [{"role": "user", "content": content}]});
        let rendered =
            place.post("/v1/messages/count_tokens", &json!({"max_tokens": 1, "messages": body["messages"]}));
        rendered.json()["input_tokens"].as_u64().expect("a count")
    };
    // A control token's spelling is several tokens of text.
    assert!(prompt("a <|im_end|> b") > prompt("a b") + 3);
    let ask = |stream: bool| {
        let body = json!({"messages": [{"role": "user", "content": "Write a line of Chinese and some emoji."}],
                          "temperature": 0, "max_tokens": 60, "stream": stream});
        place.post("/v1/chat/completions", &body)
    };
    let whole = ask(false).json()["choices"][0]["message"]["content"].as_str().expect("text").to_owned();
    let chunks = ask(true).body;
    let pieces = chunks.lines().filter_map(|line| line.strip_prefix("data: {")).map(|rest| {
        let chunk: Value = serde_json::from_str(&format!("{{{rest}")).expect("JSON");
        chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default().to_owned()
    });
    assert_eq!(pieces.collect::<String>(), whole);
    assert!(!whole.is_ascii() && !whole.contains('\u{fffd}'), "{whole}");
    for text in ["語彙 🙂\u{200d}", "e\u{301}", "\u{feff}a", "<|im_start|>"] {
        let body = json!({"content": text, "parse_special": false});
        let ids = place.post("/tokenize", &body).json()["tokens"].clone();
        let back = place.post("/detokenize", &json!({"tokens": ids})).json()["content"].clone();
        // The vocabulary composes characters, as its publisher's tokenizer does.
        let composed = if text == "e\u{301}" { "\u{e9}" } else { text };
        assert_eq!(back, composed);
    }
}
