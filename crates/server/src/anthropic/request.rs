//! Reads a request of Anthropic's messages API.

use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use crate::error::ApiError;
use crate::generate::chat::{ChatRequest, Tool, ToolChoice};
use crate::generate::options::OutputFormat;
use crate::json::{JsonBody, read as read_json};
use crate::openai::{chat_request, options};

#[derive(Deserialize)]
struct Fields {
    model: Option<String>,
    messages: Option<Vec<MessageFields>>,
    system: Option<Content>,
    tools: Option<Vec<ToolFields>>,
    tool_choice: Option<Choice>,
    stop_sequences: Option<Vec<String>>,
    thinking: Option<Thinking>,
    output_format: Option<Format>,
    output_config: Option<OutputConfig>,
}

#[derive(Deserialize)]
struct OutputConfig {
    format: Option<Format>,
}

#[derive(Deserialize)]
struct Format {
    schema: Option<Json>,
}

#[derive(Deserialize)]
struct MessageFields {
    role: String,
    content: Content,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a string or a list of blocks")]
enum Content {
    Text(String),
    Blocks(Vec<Json>),
}

#[derive(Deserialize)]
struct ToolFields {
    name: String,
    description: Option<String>,
    input_schema: Option<Json>,
}

#[derive(Deserialize)]
struct Choice {
    r#type: String,
    name: Option<String>,
    disable_parallel_tool_use: Option<bool>,
}

#[derive(Deserialize)]
struct Thinking {
    r#type: String,
}

/// Reads the request; `slots` is how many answers run at once.
pub(super) fn read(body: &JsonBody, slots: usize) -> Result<ChatRequest, ApiError> {
    let fields: Fields = body.read()?;
    let mut options = options::read(body, slots)?;
    options.stop = fields.stop_sequences.unwrap_or_default();
    let tools: Vec<Tool> = fields.tools.unwrap_or_default().into_iter().map(tool).collect();
    let (tool_choice, parallel_tool_calls) = tool_choice(fields.tool_choice, &tools)?;
    let mut messages = Vec::new();
    if let Some(system) = fields.system {
        messages.push(json!({"role": "system", "content": system.text("system")?}));
    }
    for (index, message) in fields.messages.unwrap_or_default().into_iter().enumerate() {
        push_message(&mut messages, message, &format!("messages[{index}]"))?;
    }
    if messages.iter().all(|message| message["role"] == "system") {
        return Err(ApiError::invalid("messages", "`messages` is missing or empty"));
    }
    let format = fields.output_config.and_then(|config| config.format).or(fields.output_format);
    let continues = messages.last().is_some_and(|last| last["role"] == "assistant");
    let mut template_variables = Map::new();
    if let Some(thinking) = fields.thinking {
        let enabled = thinking.r#type != "disabled";
        template_variables.insert("enable_thinking".to_owned(), enabled.into());
    }
    Ok(ChatRequest {
        model: fields.model,
        messages: chat_request::messages(&messages)?,
        tools,
        tool_choice,
        parallel_tool_calls,
        format: format.and_then(|format| format.schema).map_or(OutputFormat::Text, OutputFormat::JsonSchema),
        split_reasoning: true,
        template_variables,
        continue_final_message: continues,
        add_generation_prompt: !continues,
        options,
    })
}

fn tool(fields: ToolFields) -> Tool {
    Tool {
        name: fields.name,
        description: fields.description,
        parameters: fields.input_schema.unwrap_or_else(|| json!({"type": "object"})),
    }
}

/// The choice, and whether one answer may call several tools.
fn tool_choice(choice: Option<Choice>, tools: &[Tool]) -> Result<(ToolChoice, bool), ApiError> {
    let Some(choice) = choice else { return Ok((ToolChoice::Auto, true)) };
    let parallel = !choice.disable_parallel_tool_use.unwrap_or(false);
    let wrong = |text: String| Err(ApiError::invalid("tool_choice", text));
    let choice = match (choice.r#type.as_str(), choice.name) {
        ("auto", _) => ToolChoice::Auto,
        ("none", _) => ToolChoice::None,
        ("any", _) if tools.is_empty() => {
            return wrong("`tool_choice` is any, but there are no tools".to_owned());
        }
        ("any", _) => ToolChoice::Required,
        ("tool", Some(name)) if tools.iter().any(|tool| tool.name == name) => ToolChoice::Named(name),
        ("tool", name) => {
            let name = name.unwrap_or_default();
            return wrong(format!("`tool_choice` names {name:?}, which is none of the tools"));
        }
        (other, _) => {
            return wrong(format!("`tool_choice` is {other:?}, but must be auto, any, tool or none"));
        }
    };
    Ok((choice, parallel))
}

impl Content {
    fn blocks(self) -> Vec<Json> {
        match self {
            Content::Text(text) => vec![json!({"type": "text", "text": text})],
            Content::Blocks(blocks) => blocks,
        }
    }

    /// The text of all blocks, which must be text.
    fn text(self, path: &str) -> Result<String, ApiError> {
        let texts: Result<Vec<String>, ApiError> = self
            .blocks()
            .iter()
            .enumerate()
            .map(|(at, block)| text(block, &format!("{path}[{at}]")))
            .collect();
        Ok(texts?.join("\n"))
    }
}

fn text(block: &Json, path: &str) -> Result<String, ApiError> {
    match (block["type"].as_str(), block["text"].as_str()) {
        (Some("text"), Some(text)) => Ok(text.to_owned()),
        (kind, _) => {
            let kind = kind.unwrap_or("without a type");
            Err(ApiError::invalid(path, format!("`{path}` is {kind}: only text is supported")))
        }
    }
}

/// Adds a message in the shape of OpenAI's API: results of tools are messages of their own there.
fn push_message(messages: &mut Vec<Json>, message: MessageFields, path: &str) -> Result<(), ApiError> {
    let MessageFields { role, content } = message;
    if !matches!(role.as_str(), "user" | "assistant" | "system") {
        let path = format!("{path}.role");
        return Err(ApiError::invalid(
            path.clone(),
            format!("`{path}` is {role:?}, but must be user or assistant"),
        ));
    }
    let (mut texts, mut calls, mut reasoning) = (Vec::new(), Vec::new(), Vec::new());
    for (at, block) in content.blocks().into_iter().enumerate() {
        let path = format!("{path}.content[{at}]");
        match block["type"].as_str() {
            Some("tool_result") => {
                let content = match &block["content"] {
                    Json::Null => String::new(),
                    content => read_json::<Content>(content)?.text(&format!("{path}.content"))?,
                };
                messages.push(json!({
                    "role": "tool", "tool_call_id": block["tool_use_id"], "content": content,
                }));
            }
            Some("tool_use") if block["name"].is_string() => calls.push(json!({
                "id": block["id"],
                "type": "function",
                "function": {"name": block["name"], "arguments": block["input"]},
            })),
            Some("thinking") => reasoning.extend(block["thinking"].as_str().map(str::to_owned)),
            Some("redacted_thinking") => {}
            _ => texts.push(text(&block, &path)?),
        }
    }
    if texts.is_empty() && calls.is_empty() && reasoning.is_empty() {
        return Ok(());
    }
    let mut message = json!({"role": role, "content": texts.join("\n")});
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    if !reasoning.is_empty() {
        message["reasoning_content"] = reasoning.join("\n").into();
    }
    messages.push(message);
    Ok(())
}
