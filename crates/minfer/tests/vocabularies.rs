//! The vocabularies of llama.cpp's source package encode as llama.cpp recorded, and decode to the
//! text they were given.
//!
//! `cargo xtask test` fetches them: `NAME.gguf`, and beside it the texts in `NAME.gguf.inp` and the
//! ids, one line for each text, in `NAME.gguf.out`.

use std::fs;
use std::path::{Path, PathBuf};

use minfer::ModelFile;
use minfer::text::{DecodeOptions, EncodeOptions, Tokenizer};
use minfer_testkit::fetched;
use serde_json::Value as Json;

/// What stands between two texts.
const SEPARATOR: &str = "\n__ggml_vocab_test__\n";

/// How many vocabularies the package has, and how many of them with recorded ids.
const VOCABULARIES: [usize; 2] = [19, 15];

#[test]
#[ignore = "reads vocabularies of llama.cpp: run by `cargo xtask test`"]
fn vocabularies_encode_as_recorded_and_decode_to_the_text() {
    let vocabularies = vocabularies(&fetched::vectors());
    let recorded = vocabularies.iter().filter(|path| beside(path, "out").exists()).count();
    assert_eq!([vocabularies.len(), recorded], VOCABULARIES);
    for path in &vocabularies {
        let tokenizer = ModelFile::open(path).unwrap().tokenizer(None).unwrap();
        if beside(path, "out").exists() {
            check(&tokenizer, path);
        }
    }
}

/// Ids of the `tokenizers` library with the published normalizers and pre-tokenizers.
const PUBLISHED: &str = include_str!("vocabularies/published.json");

#[test]
#[ignore = "reads vocabularies of llama.cpp: run by `cargo xtask test`"]
fn vocabularies_encode_as_their_published_tokenizers() {
    let published: Json = serde_json::from_str(PUBLISHED).unwrap();
    let (texts, folder) = (published["texts"].as_array().unwrap(), fetched::vectors());
    let mut wrong = Vec::new();
    for (name, rows) in published["ids"].as_object().unwrap() {
        let path = folder.join(format!("ggml-vocab-{name}.gguf"));
        let tokenizer = ModelFile::open(&path).unwrap().tokenizer(None).unwrap();
        for (text, ids) in texts.iter().zip(rows.as_array().unwrap()).filter(|(_, ids)| !ids.is_null()) {
            let text = text.as_str().unwrap();
            let found = tokenizer.encode(text, PLAIN).unwrap();
            if serde_json::to_value(&found).unwrap() != *ids {
                wrong.push(format!("{name}: {text:?}\n  {found:?}\n  {ids}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

const PLAIN: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };

/// The tokens of composed text, between special tokens too.
#[test]
#[ignore = "reads vocabularies of llama.cpp: run by `cargo xtask test`"]
fn text_between_special_tokens_is_composed() {
    let path = fetched::vectors().join("ggml-vocab-qwen2.gguf");
    let tokenizer = ModelFile::open(&path).unwrap().tokenizer(None).unwrap();
    let ids = |text: &str| {
        tokenizer.encode(text, EncodeOptions { add_special: false, parse_special: true }).unwrap()
    };
    assert_eq!(ids("e\u{301}te\u{301}"), [38783]);
    let start = tokenizer.special_token("<|im_start|>").unwrap();
    assert_eq!(ids("e\u{301}te\u{301}<|im_start|>e\u{301}te\u{301}"), [38783, start, 38783]);
    assert_eq!(tokenizer.decode(&[38783], DecodeOptions::default()), "\u{e9}t\u{e9}");
}

fn check(tokenizer: &Tokenizer, path: &Path) {
    let texts = fs::read_to_string(beside(path, "inp")).unwrap();
    let texts: Vec<&str> = texts.split(SEPARATOR).collect();
    let ids = fs::read_to_string(beside(path, "out")).unwrap();
    let ids =
        ids.lines().map(|line| line.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<u32>>());
    let cases: Vec<_> = texts.into_iter().zip(ids).collect();
    assert!(cases.len() > 40, "{}", path.display());
    // WordPiece lowercases its words and joins them by single spaces.
    let lossy = path.ends_with("ggml-vocab-bert-bge.gguf");
    // llama.cpp does not compose these; `published.json` has texts like them.
    let accents =
        |text: &str| path.ends_with("ggml-vocab-qwen35.gguf") && text.contains(['\u{300}', '\u{301}']);
    for (text, ids) in cases.into_iter().filter(|(text, _)| !accents(text)) {
        assert_eq!(
            tokenizer.encode(text, EncodeOptions::default()).unwrap(),
            ids,
            "{}: {text:?}",
            path.display()
        );
        if !lossy {
            assert_eq!(tokenizer.decode(&ids, DecodeOptions::default()), text, "{}", path.display());
        }
    }
}

fn vocabularies(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|end| end == "gguf")).collect();
    files.sort();
    files
}

fn beside(path: &Path, extension: &str) -> PathBuf {
    path.with_extension(format!("gguf.{extension}"))
}
