//! The chat templates of real models render as Python's jinja2 renders them.
//!
//! `data/templates/references.json` has what jinja2 made of each template with each conversation
//! (its digest, or the words of a refusal); `tools/templates/make_template_references.py` says how.
//! The templates themselves are read from llama.cpp's source package and from the real models,
//! which `cargo xtask test` fetches.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use minfer_testkit::fetched;
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};

use super::message::{Arguments, Content, Identity, Shape};
use super::{ChatTemplate, Message, RenderInput, TemplateError};

const REFERENCES: &str = include_str!("../../data/templates/references.json");
const CONVERSATIONS: &str = include_str!("../../data/templates/conversations.json");

const AS_GIVEN: Shape = Shape { content: Content::AsGiven, arguments: Arguments::AsGiven };

/// What the script's clock shows: 3 February 2026, 04:05:06.
fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_770_091_506)
}

/// The first 32 digits, as the script records them.
fn digest(text: &str) -> String {
    Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn conversations() -> Vec<(String, RenderInput)> {
    let list: Vec<Json> = serde_json::from_str(CONVERSATIONS).unwrap();
    list.iter().map(|json| (json["name"].as_str().unwrap().to_owned(), input(json))).collect()
}

fn input(json: &Json) -> RenderInput {
    let flag = |name: &str| json.get(name).and_then(Json::as_bool).unwrap_or(false);
    let list = |name: &str| json.get(name).and_then(Json::as_array).cloned().unwrap_or_default();
    RenderInput {
        messages: Message::list_from_json(&list("messages")).unwrap(),
        add_generation_prompt: flag("add_generation_prompt"),
        continue_final_message: flag("continue_final_message"),
        tools: list("tools"),
        variables: json.get("variables").and_then(Json::as_object).cloned().unwrap_or_default(),
        now: Some(now()),
    }
}

/// The outcome of a rendering, in the form of the references.
fn outcome(result: &Result<String, TemplateError>) -> String {
    match result {
        Ok(text) => digest(text),
        Err(TemplateError::Raised(words)) => format!("!{words}"),
        Err(error) => format!("?{error}"),
    }
}

/// Where Python fails without a word of the template's, on text added to `None` for example, there
/// is nothing to be equal to.
fn agrees(found: &str, expected: &str) -> bool {
    found == expected || expected.starts_with('?')
}

/// The renderings of `source` that are not as the references say.
fn differences(name: &str, source: &str, references: &Map<String, Json>) -> Vec<String> {
    let row = &references[name];
    assert_eq!(row["source"], digest(source), "{name} is another text than the references are of");
    let template = ChatTemplate::new(source, Some("<|bos|>"), Some("<|eos|>"));
    let mut wrong = Vec::new();
    for (conversation, input) in conversations() {
        let result = match &template {
            Ok(template) => template.render_mapped(&input, &Identity, AS_GIVEN),
            Err(error) => Err(error.clone()),
        };
        let (found, expected) = (outcome(&result), row["renderings"][&conversation].as_str().unwrap());
        if !agrees(&found, expected) {
            wrong.push(format!("{name}, {conversation}: {found}, expected {expected}"));
        }
    }
    wrong
}

fn references() -> Map<String, Json> {
    serde_json::from_str(REFERENCES).unwrap()
}

fn compare(templates: &[(String, String)]) {
    let references = references();
    let wrong: Vec<String> =
        templates.iter().flat_map(|(name, source)| differences(name, source, &references)).collect();
    let count = templates.len() * conversations().len();
    println!("{} of {count} renderings of {} templates are equal", count - wrong.len(), templates.len());
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// The chat templates of the source package, by name.
pub(super) fn packaged_templates() -> Vec<(String, String)> {
    let folder = fetched::vectors();
    let mut templates = Vec::new();
    for entry in fs::read_dir(folder.join("templates")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        templates.push((name, fs::read_to_string(&path).unwrap()));
    }
    templates.sort();
    templates
}

#[test]
#[ignore = "reads chat templates of llama.cpp: run by `cargo xtask test`"]
fn templates_of_the_source_package_render_as_in_python() {
    let templates = packaged_templates();
    let known = references().keys().filter(|name| name.ends_with(".jinja")).count();
    assert_eq!(templates.len(), known);
    compare(&templates);
}

#[test]
#[ignore = "reads a real model: run by `cargo xtask test`"]
fn templates_of_the_test_models_render_as_in_python() {
    compare(&["qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "smollm2-135m-instruct-q4_1.gguf"].map(of_model));
}

mod larger_models {
    #[test]
    #[ignore = "reads a larger model: run by `cargo xtask test --all-models`"]
    fn templates_render_as_in_python() {
        super::compare(&["qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"].map(super::of_model));
    }
}

/// The name and the chat template of a real model.
fn of_model(name: &str) -> (String, String) {
    (name.to_owned(), template_of(&fetched::model(name)))
}

fn template_of(path: &Path) -> String {
    let file = minfer_formats::gguf::File::open(path).unwrap();
    file.metadata().string("tokenizer.chat_template").unwrap().unwrap().to_owned()
}
