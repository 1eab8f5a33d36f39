//! Tools, calls and results as plain text, for chat templates that do not know them.

use minfer::Message;
use serde_json::Value as Json;

/// Tells the model how to call tools.
pub(super) fn describe(messages: &mut Vec<Message>, tools: &[Json]) {
    let list: Vec<String> = tools.iter().map(Json::to_string).collect();
    let text = format!(
        "You can call these functions:\n{}\nTo call one, answer only with \
         <tool_call>{{\"name\": NAME, \"arguments\": OBJECT}}</tool_call>",
        list.join("\n")
    );
    match messages.first_mut().filter(|first| first.role == "system") {
        Some(first) => first.content = format!("{}\n\n{text}", text_of(&first.content)).into(),
        None => messages.insert(0, Message::new("system", text)),
    }
}

/// Spells calls in the text of the messages that made them, and results as messages of the user.
pub(super) fn spell_calls(messages: &mut [Message]) {
    for message in messages {
        let calls = message.fields.shift_remove("tool_calls");
        let calls = calls.as_ref().and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut text = text_of(&message.content);
        for call in calls {
            let function = call.get("function").unwrap_or(call);
            let arguments = match &function["arguments"] {
                // As clients send them.
                Json::String(text) => text.clone(),
                value => value.to_string(),
            };
            let name = &function["name"];
            text.push_str(&format!(
                "<tool_call>{{\"name\": {name}, \"arguments\": {arguments}}}</tool_call>"
            ));
        }
        if message.role == "tool" {
            "user".clone_into(&mut message.role);
            text = format!("<tool_response>{text}</tool_response>");
        }
        if !calls.is_empty() || message.content.is_null() || text.starts_with("<tool_response>") {
            message.content = text.into();
        }
    }
}

/// The text of a content: all its parts.
fn text_of(content: &Json) -> String {
    match content {
        Json::String(text) => text.clone(),
        Json::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_and_its_result_become_text() {
        let messages = [
            serde_json::json!({"role": "user", "content": [{"type": "text", "text": "sum?"}]}),
            serde_json::json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 1}"}},
            ]}),
            serde_json::json!({"role": "tool", "tool_call_id": "1", "content": "2"}),
        ];
        let mut messages = Message::list_from_json(&messages).unwrap();
        describe(&mut messages, &[serde_json::json!({"name": "add"})]);
        spell_calls(&mut messages);
        let told: Vec<(&str, String)> =
            messages.iter().map(|message| (message.role.as_str(), text_of(&message.content))).collect();
        assert!(told[0].0 == "system" && told[0].1.contains(r#"{"name":"add"}"#), "{told:?}");
        let call = r#"<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>"#;
        let rest = [("user", "sum?"), ("assistant", call), ("user", "<tool_response>2</tool_response>")];
        assert_eq!(told[1..], rest.map(|(role, text)| (role, text.to_owned())));
    }
}
