use super::*;
use proptest::prelude::*;
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

#[test]
fn lines_and_spaces() {
    let text = "a  b\n\n  c";
    assert_eq!(words("gpt-2", text), ["a", " ", " b", "\n\n ", " c"]);
    assert_eq!(words("llama-bpe", text), ["a", " ", " b", "\n\n", " ", " c"]);
    assert_eq!(words("gemma4", text), ["a  b", "\n\n", "  c"]);
}

#[test]
fn the_wide_space_is_a_space() {
    assert_eq!(words("deepseek-llm", "  \u{3000}a"), ["  ", "\u{3000}a"]);
    assert_eq!(words("deepseek-llm", "=\u{3001}\u{3000}\u{3000}"), ["=", "\u{3001}", "\u{3000}\u{3000}"]);
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
