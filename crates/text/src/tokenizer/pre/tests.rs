use super::*;
use proptest::prelude::*;
use serde_json::Value as Json;
use std::sync::LazyLock;

fn words<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
    let mut words = Vec::new();
    PreTokenizer::new(PreTokenizerInfo::named(name).unwrap()).split(text, |word| words.push(word));
    words
}

#[test]
fn numbers() {
    for (name, expected) in [
        ("gpt-2", vec!["a", "12345", "b"]),
        ("smollm", vec!["a", "1", "2", "3", "4", "5", "b"]),
        ("qwen2", vec!["a", "1", "2", "3", "4", "5", "b"]),
        ("llama-bpe", vec!["a", "123", "45", "b"]),
        ("gpt-4o", vec!["a", "123", "45", "b"]),
        ("tekken", vec!["a", "1", "2", "3", "4", "5", "b"]),
        ("afmoe", vec!["a", "12", "345", "b"]),
        ("superbpe", vec!["a", "12", "345", "b"]),
        ("falcon", vec!["a", "123", "45", "b"]),
        ("default", vec!["a", "123", "45", "b"]),
        ("deepseek-v3", vec!["a", "123", "45", "b"]),
        ("bloom", vec!["a12345b"]),
        ("viking", vec!["a", "1", "2", "3", "4", "5", "b"]),
    ] {
        assert_eq!(words(name, "a12345b"), expected, "{name}");
    }
}

#[test]
fn cases_and_contractions() {
    let text = "HelloWorld isN't";
    assert_eq!(words("gpt-4o", text), ["Hello", "World", " is", "N't"]);
    assert_eq!(words("tekken", text), ["Hello", "World", " is", "N", "'t"]);
    assert_eq!(words("qwen2", text), ["HelloWorld", " isN", "'t"]);
    assert_eq!(words("ufakzeka", text), ["HelloWorld", " isN", "'t"]);
    assert_eq!(words("ufakzeka", "can'tx"), ["can", "'tx"]);
    assert_eq!(words("qwen2", "can'tx"), ["can", "'t", "x"]);
}

/// What the `tokenizers` library makes of texts with the published expressions, as lengths in
/// characters.
#[test]
fn texts_are_split_as_by_the_published_expressions() {
    let recorded: Json = serde_json::from_str(include_str!("../../../data/tokenizers/splits.json")).unwrap();
    let texts: Vec<&str> =
        recorded["texts"].as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect();
    let mut wrong = Vec::new();
    for (name, rule) in recorded["rules"].as_object().unwrap() {
        let pre_tokenizer = PreTokenizer::new(PreTokenizerInfo::named(name).unwrap());
        for (text, expected) in texts.iter().zip(rule["lengths"].as_array().unwrap()) {
            let mut lengths = Vec::new();
            pre_tokenizer.split(text, |word| lengths.push(word.chars().count().to_string()));
            let (found, expected) = (lengths.join(" "), expected.as_str().unwrap());
            if found != expected {
                wrong.push(format!("{name}: {text:?}\n  {found}\n  {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Rules that share a constant with a recorded one are recorded with it.
#[test]
fn the_letter_rule_keeps_marks_with_their_letters() {
    let text = "\u{928}\u{92e}\u{938}\u{94d}\u{924}\u{947} e\u{301}t";
    for name in
        ["tekken", "gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2", "tiny_aya", "youtu", "kimi-k2"]
    {
        assert_eq!(words(name, text), [&text[..18], &text[18..]], "{name}");
    }
}

#[test]
fn lines_and_spaces() {
    let text = "a  b\n\n  c";
    assert_eq!(words("gpt-2", text), ["a", " ", " b", "\n\n ", " c"]);
    assert_eq!(words("llama-bpe", text), ["a", " ", " b", "\n\n", " ", " c"]);
    assert_eq!(words("gemma4", text), ["a  b", "\n\n", "  c"]);
}

#[test]
fn unknown_names_are_told_with_the_way_out() {
    let message = PreTokenizerInfo::named("nonsense").unwrap_err().to_string();
    for part in ["nonsense", "`tokenizer_pre`", "qwen2", "tekken"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn names_are_told_apart() {
    for (index, info) in PRE_TOKENIZERS.iter().enumerate() {
        assert!(PRE_TOKENIZERS[..index].iter().all(|before| before.name != info.name), "{}", info.name);
    }
}

static ALL: LazyLock<Vec<PreTokenizer>> =
    LazyLock::new(|| PRE_TOKENIZERS.iter().map(PreTokenizer::new).collect());

proptest! {
    #[test]
    fn pieces_join_to_the_text(text in "([ \r\n]{0,3}|[0-9]{0,5}|'[a-zA-Z]{1,2}|[一가あ]|\\PC|\\p{L}){0,20}") {
        for (pre_tokenizer, info) in ALL.iter().zip(PRE_TOKENIZERS) {
            let mut joined = String::new();
            pre_tokenizer.split(&text, |word| {
                assert!(!word.is_empty(), "{}", info.name);
                joined.push_str(word);
            });
            prop_assert_eq!(&joined, &text, "{}", info.name);
        }
    }
}
