//! Reads a request of OpenAI's responses API.

use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::{chat_request, options};
use crate::error::ApiError;
use crate::generate::chat::{ChatRequest, Tool, ToolChoice};
use crate::generate::options::OutputFormat;
use crate::json::{JsonBody, number};

#[derive(Deserialize)]
struct Fields {
    model: Option<String>,
    input: Option<Json>,
    instructions: Option<String>,
    max_output_tokens: Option<u32>,
    stream: Option<bool>,
    tools: Option<Vec<Json>>,
    tool_choice: Option<Json>,
    parallel_tool_calls: Option<bool>,
    text: Option<Text>,
    reasoning: Option<Reasoning>,
    previous_response_id: Option<String>,
    chat_template_kwargs: Option<Map<String, Json>>,
}

#[derive(Deserialize)]
struct Text {
    format: Option<Format>,
}

#[derive(Deserialize)]
struct Format {
    r#type: String,
    schema: Option<Json>,
}

#[derive(Deserialize)]
struct Reasoning {
    effort: Option<String>,
}

/// What a response repeats of its request, and how it is sent.
pub(super) struct Echo {
    pub(super) fields: Json,
    pub(super) stream: bool,
}

/// Reads the request; `slots` is how many answers run at once.
pub(super) fn read(body: &JsonBody, slots: usize) -> Result<(ChatRequest, Echo), ApiError> {
    let fields: Fields = body.read()?;
    if fields.previous_response_id.is_some() {
        let message = "responses are not stored: `input` must have the whole conversation";
        return Err(ApiError::not_supported("previous_response_id", message));
    }
    let mut options = options::read(body, slots)?;
    options.max_tokens = fields.max_output_tokens;
    options.n = 1;
    let mut messages = Vec::new();
    if let Some(instructions) = &fields.instructions {
        messages.push(json!({"role": "system", "content": instructions}));
    }
    push_input(&mut messages, fields.input.as_ref())?;
    let tools = tools(fields.tools.as_deref().unwrap_or_default())?;
    // The chat API names a function one level deeper.
    let choice = fields.tool_choice.as_ref().map(|choice| match choice["name"].as_str() {
        Some(name) => json!({"type": "function", "function": {"name": name}}),
        None => choice.clone(),
    });
    let tool_choice: ToolChoice = chat_request::tool_choice(choice.as_ref(), &tools)?;
    let mut template_variables = fields.chat_template_kwargs.unwrap_or_default();
    if let Some(effort) = fields.reasoning.and_then(|reasoning| reasoning.effort) {
        template_variables.insert("reasoning_effort".to_owned(), effort.into());
    }
    let parallel_tool_calls = fields.parallel_tool_calls.unwrap_or(true);
    let echo = Echo {
        fields: json!({
            "instructions": fields.instructions,
            "max_output_tokens": fields.max_output_tokens,
            "metadata": {},
            "parallel_tool_calls": parallel_tool_calls,
            "temperature": number(options.sampling.temperature),
            "text": {"format": {"type": fields.text.as_ref().and_then(|text| text.format.as_ref()).map_or("text", |format| &format.r#type)}},
            "tool_choice": fields.tool_choice.unwrap_or_else(|| "auto".into()),
            "tools": fields.tools.unwrap_or_default(),
            "top_p": number(options.sampling.top_p),
        }),
        stream: fields.stream.unwrap_or(false),
    };
    let request = ChatRequest {
        model: fields.model,
        messages: chat_request::messages(&messages).map_err(|error| ApiError {
            param: error.param.map(|param| param.replacen("messages", "input", 1)),
            ..error
        })?,
        tools,
        tool_choice,
        parallel_tool_calls,
        format: format(fields.text)?,
        split_reasoning: true,
        template_variables,
        continue_final_message: false,
        add_generation_prompt: true,
        options,
    };
    Ok((request, echo))
}

fn format(text: Option<Text>) -> Result<OutputFormat, ApiError> {
    let Some(format) = text.and_then(|text| text.format) else { return Ok(OutputFormat::Text) };
    match (format.r#type.as_str(), format.schema) {
        ("text", _) => Ok(OutputFormat::Text),
        ("json_object", _) => Ok(OutputFormat::JsonObject),
        ("json_schema", Some(schema)) => Ok(OutputFormat::JsonSchema(schema)),
        ("json_schema", None) => {
            Err(ApiError::invalid("text.format.schema", "`text.format.schema` is missing"))
        }
        (other, _) => Err(ApiError::invalid(
            "text.format.type",
            format!("`text.format.type` is {other:?}, but must be text, json_object or json_schema"),
        )),
    }
}

fn tools(tools: &[Json]) -> Result<Vec<Tool>, ApiError> {
    let tool = |(index, tool): (usize, &Json)| {
        let path = format!("tools[{index}]");
        match (tool["type"].as_str(), tool["name"].as_str()) {
            (Some("function"), Some(name)) => Ok(Tool {
                name: name.to_owned(),
                description: tool["description"].as_str().map(str::to_owned),
                parameters: match &tool["parameters"] {
                    Json::Null => json!({"type": "object"}),
                    parameters => parameters.clone(),
                },
            }),
            _ => Err(ApiError::invalid(path.clone(), format!("`{path}` must be a function with a name"))),
        }
    };
    tools.iter().enumerate().map(tool).collect()
}

/// Adds the input's items as messages of the chat API.
fn push_input(messages: &mut Vec<Json>, input: Option<&Json>) -> Result<(), ApiError> {
    let items = match input {
        Some(Json::String(text)) => {
            messages.push(json!({"role": "user", "content": text}));
            return Ok(());
        }
        Some(Json::Array(items)) if !items.is_empty() => items,
        None | Some(Json::Null | Json::Array(_)) => {
            return Err(ApiError::invalid("input", "`input` is missing or empty"));
        }
        Some(_) => return Err(ApiError::invalid("input", "`input` must be a text or a list of items")),
    };
    for (index, item) in items.iter().enumerate() {
        let path = format!("input[{index}]");
        match item["type"].as_str() {
            None | Some("message") => messages.push(json!({
                "role": item["role"], "content": content(&item["content"], &path)?,
            })),
            Some("function_call") => push_call(messages, item),
            Some("function_call_output") => messages.push(json!({
                "role": "tool", "tool_call_id": item["call_id"],
                "content": content(&item["output"], &path)?,
            })),
            Some("reasoning") => {}
            Some(other) => {
                return Err(ApiError::invalid(
                    path.clone(),
                    format!("`{path}` is {other}, which is not supported"),
                ));
            }
        }
    }
    Ok(())
}

/// Several calls of one turn are one message.
fn push_call(messages: &mut Vec<Json>, item: &Json) {
    let call = json!({
        "id": item["call_id"], "type": "function",
        "function": {"name": item["name"], "arguments": item["arguments"]},
    });
    match messages.last_mut().filter(|last| last["role"] == "assistant") {
        Some(last) => match last["tool_calls"].as_array_mut() {
            Some(calls) => calls.push(call),
            None => last["tool_calls"] = json!([call]),
        },
        None => messages.push(json!({"role": "assistant", "content": "", "tool_calls": [call]})),
    }
}

fn content(value: &Json, path: &str) -> Result<Json, ApiError> {
    let Some(parts) = value.as_array() else { return Ok(value.clone()) };
    let mut texts = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        match (part["type"].as_str(), part["text"].as_str()) {
            (Some("input_text" | "output_text" | "text"), Some(text)) => texts.push(text),
            (kind, _) => {
                let (path, kind) = (format!("{path}.content[{at}]"), kind.unwrap_or("without a type"));
                return Err(ApiError::invalid(
                    path.clone(),
                    format!("`{path}` is {kind}: only text is supported"),
                ));
            }
        }
    }
    Ok(texts.join("\n").into())
}
