//! Models by name.
#![cfg(feature = "hub")]

#[path = "common/chat_model.rs"]
mod common;

use std::fs;

use common::{builder, chat_file};
use minfer::{ErrorKind, Model};
use minfer_testkit::fetched;
use minfer_testkit::synthetic::{self, Family};

#[test]
fn a_name_is_a_file_of_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tiny.gguf"), synthetic::file(Family::Llama)).unwrap();
    for name in ["tiny", "tiny.gguf"] {
        let model = Model::builder(name).models_folder(folder.path()).load().unwrap();
        assert_eq!(model.path(), folder.path().join("tiny.gguf"));
    }
    let by_path = folder.path().join("tiny.gguf");
    assert!(Model::open(&by_path).is_ok(), "a path needs no folder");
    let near = Model::builder("tinny").models_folder(folder.path()).load().unwrap_err();
    assert_eq!(near.kind(), ErrorKind::ModelNotFound);
    assert!(near.to_string().contains("tiny"), "{near}");
}

#[test]
fn a_name_of_the_catalogue_is_downloaded_only_where_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let error = Model::builder("smollm2").models_folder(folder.path()).load().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ModelNotFound);
    assert!(error.to_string().contains("`pull` downloads it"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    // A file of another size has the name.
    fs::write(folder.path().join("smollm2-135m-instruct-q4_1.gguf"), b"GGUF").unwrap();
    let error = Model::builder("smollm2").models_folder(folder.path()).load().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ModelUnreadable);
}

#[test]
#[ignore = "reads a real model: run by `cargo xtask test`"]
fn a_name_of_the_catalogue_is_a_cached_model() {
    let path = fetched::model("smollm2-135m-instruct-q4_1.gguf");
    let folder = path.parent().unwrap();
    let model = Model::builder("smollm2").models_folder(folder).context(256).load().unwrap();
    assert_eq!(model.path(), path);
    assert!(!model.chat().user("Say yes.").max_tokens(4).text().unwrap().is_empty());
}

#[test]
fn a_file_that_is_open_needs_no_name() {
    assert_eq!(builder().load().unwrap().path(), chat_file().path());
}
