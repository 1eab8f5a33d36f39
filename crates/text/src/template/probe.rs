//! Detects the form of content and tool arguments that a template supports.
//!
//! Some templates print content only if it is a list of parts, and some need tool arguments as JSON
//! text. No metadata says so; short test conversations are rendered and searched.

use serde_json::{Map, json};

use super::message::{Arguments, Content, Identity, Shape};
use super::{ChatTemplate, Message, RenderInput};

/// A word that no template contains.
const WORD: &str = "minferprobe";

/// The forms that `template` prints; the usual forms if it prints none.
pub(super) fn shape(template: &ChatTemplate) -> Shape {
    let mut shape = Shape::PLAIN;
    let prints = |shape, messages| printed(template, shape, messages).is_some_and(|text| text.contains(WORD));
    let parts = Shape { content: Content::Parts, ..shape };
    if !prints(shape, vec![question(WORD)]) && prints(parts, vec![question(WORD)]) {
        shape = parts;
    }
    let texts = Shape { arguments: Arguments::Text, ..shape };
    let good = |text: Option<String>| text.is_some_and(|text| text.contains(WORD) && !text.contains(REPR));
    if !good(printed(template, shape, call())) && good(printed(template, texts, call())) {
        shape = texts;
    }
    shape
}

/// The beginning of an object in Python's notation, which is not JSON.
const REPR: &str = "{'minferprobe'";

fn printed(template: &ChatTemplate, shape: Shape, messages: Vec<Message>) -> Option<String> {
    let input = RenderInput { messages, ..RenderInput::default() };
    template.render_mapped(&input, &Identity, shape).ok()
}

fn question(text: &str) -> Message {
    Message::new("user", text)
}

fn call() -> Vec<Message> {
    let function = json!({"name": "f", "arguments": {WORD: "x"}});
    let call = json!({"id": "call00001", "type": "function", "function": function});
    let fields = Map::from_iter([("tool_calls".to_owned(), json!([call]))]);
    let answer = Message { role: "assistant".to_owned(), content: json!(""), fields };
    vec![question("x"), answer]
}
