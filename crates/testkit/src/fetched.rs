//! Files that `cargo xtask test` fetches for tests: real models, and the vocabularies and chat
//! templates of llama.cpp.
//!
//! A test that needs one is `#[ignore]`d with that reason, so plain `cargo test` lists it as
//! ignored. `cargo xtask test` sets the variables below and runs ignored tests too; a file that is
//! missing then fails its test.

use std::path::{Path, PathBuf};

/// Names the folder of the real models.
const MODELS: &str = "MINFER_TEST_MODELS";

/// Names the folder of the vocabularies, with their inputs and ids, and of the chat templates.
const VECTORS: &str = "MINFER_TEST_VECTORS";

/// The path of the real model `file`, such as `smollm2-135m-instruct-q4_1.gguf`.
///
/// # Panics
///
/// If `MINFER_TEST_MODELS` names no folder, or one without the file.
pub fn model(file: &str) -> PathBuf {
    let path = folder(MODELS).join(file);
    assert!(path.is_file(), "{} is missing: `cargo xtask fetch-models` fetches it", path.display());
    path
}

/// The folder of `ggml-vocab-NAME.gguf`, each beside its `.inp` and `.out`, and of
/// `templates/NAME.jinja`.
///
/// # Panics
///
/// If `MINFER_TEST_VECTORS` names no folder.
pub fn vectors() -> PathBuf {
    folder(VECTORS)
}

fn folder(variable: &str) -> PathBuf {
    let value = std::env::var_os(variable).filter(|value| !value.is_empty());
    let value =
        value.unwrap_or_else(|| panic!("{variable} is not set: run this test with `cargo xtask test`"));
    let folder = Path::new(&value);
    assert!(folder.is_dir(), "{variable}: {} is no folder", folder.display());
    folder.to_owned()
}
