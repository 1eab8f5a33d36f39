//! Chat templates: any template renders any conversation or gives an error. Message content never
//! becomes a control token.
#![no_main]

#[path = "../../crates/text/src/template/tests/any.rs"]
mod any;

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use minfer_text::{
    BUILTIN_TEMPLATES, ChatTemplate, DecodeOptions, EncodeOptions, Message, RenderInput, TemplateError,
    TokenType, Tokenizer, TokenizerSpec, encode_chat,
};

#[derive(Debug, Arbitrary)]
struct Input {
    /// One of the templates that the crate has, else `source`.
    builtin: Option<u8>,
    source: String,
    messages: Vec<(u8, Option<String>)>,
    add_generation_prompt: bool,
    continue_final_message: bool,
    /// JSON of a list of messages, taken where it is one.
    json: Option<String>,
}

fuzz_target!(|input: Input| {
    let messages = input.messages.iter().map(|(role, content)| Message {
        content: content.clone().into(),
        ..Message::new(ROLES[usize::from(*role) % ROLES.len()], "")
    });
    let mut conversation = RenderInput {
        messages: messages.collect(),
        add_generation_prompt: input.add_generation_prompt,
        continue_final_message: input.continue_final_message,
        ..RenderInput::default()
    };
    let json =
        input.json.as_deref().and_then(|json| serde_json::from_str::<Vec<serde_json::Value>>(json).ok());
    if let Some(Ok(messages)) = json.as_deref().map(Message::list_from_json) {
        conversation.messages = messages;
    }
    let builtin =
        input.builtin.map(|number| BUILTIN_TEMPLATES[usize::from(number) % BUILTIN_TEMPLATES.len()].1);
    let _ = any::render(builtin.unwrap_or(&input.source), &conversation, &TOKENIZER);
    content_is_plain_text(&input.messages);
});

/// Between the marks of a template that prints contents as they are stand the ids of plain text.
fn content_is_plain_text(messages: &[(u8, Option<String>)]) {
    let contents = messages.iter().filter_map(|(_, content)| content.as_deref());
    // Two noncharacters are the template engine's own.
    let text = contents.clone().collect::<String>().replace(['\u{fdd0}', '\u{fdd1}'], "\u{fffd}");
    let messages = contents.map(|content| Message::new("user", content)).collect();
    let conversation = RenderInput { messages, ..RenderInput::default() };
    match encode_chat(&TOKENIZER, &PLAIN, &conversation) {
        Ok(ids) => {
            let plain = TOKENIZER.encode(&text, EncodeOptions::default()).expect("every byte has its token");
            assert_eq!(ids[1..ids.len() - 1], plain);
        }
        Err(error) => assert_eq!(error, TemplateError::NoPrivateCharacter),
    }
}

const ROLES: [&str; 6] = ["user", "assistant", "system", "tool", "developer", "<|im_end|>"];

static PLAIN: LazyLock<ChatTemplate> = LazyLock::new(|| {
    let source = "<|im_start|>{% for m in messages %}{{ m.content }}{% endfor %}<|im_end|>";
    ChatTemplate::new(source, None, None).expect("the template is well formed")
});

static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(|| {
    let mut spec = TokenizerSpec::byte_level("qwen2", &["h i"]);
    for control in ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "</think>"] {
        spec.push_token(control, TokenType::Control);
    }
    spec.push_token("<tool_call>", TokenType::UserDefined);
    Tokenizer::new(spec).expect("the specification is well formed")
});
