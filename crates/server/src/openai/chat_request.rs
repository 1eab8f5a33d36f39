//! Reads a chat request of OpenAI's API.

use minfer::Message;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::options;
use crate::error::ApiError;
use crate::generate::chat::{ChatRequest, Tool, ToolChoice};
use crate::json::JsonBody;

#[derive(Deserialize)]
struct Fields {
    model: Option<String>,
    messages: Option<Vec<Json>>,
    tools: Option<Vec<ToolFields>>,
    tool_choice: Option<Json>,
    parallel_tool_calls: Option<bool>,
    logprobs: Option<bool>,
    top_logprobs: Option<u32>,
    reasoning_effort: Option<String>,
    reasoning_format: Option<String>,
    chat_template_kwargs: Option<Map<String, Json>>,
    continue_final_message: Option<bool>,
    add_generation_prompt: Option<bool>,
}

/// A tool in the shape of OpenAI's chat API.
#[derive(Deserialize)]
pub(crate) struct ToolFields {
    r#type: String,
    function: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    description: Option<String>,
    parameters: Option<Json>,
}

/// Alternatives of each token at most.
const MOST_TOP_LOGPROBS: u32 = 20;

/// Reads the request; `slots` is how many answers run at once.
pub(crate) fn read(body: &JsonBody, slots: usize) -> Result<ChatRequest, ApiError> {
    let fields: Fields = body.read()?;
    let logprobs = logprobs(fields.logprobs, fields.top_logprobs)?;
    let mut variables = fields.chat_template_kwargs.unwrap_or_default();
    if let Some(effort) = fields.reasoning_effort {
        variables.insert("reasoning_effort".to_owned(), effort.into());
    }
    let continues = fields.continue_final_message.unwrap_or(false);
    let mut options = options::read(body, slots)?;
    options.logprobs = logprobs;
    let tools = tools(fields.tools.unwrap_or_default())?;
    Ok(ChatRequest {
        model: fields.model,
        messages: messages(&fields.messages.unwrap_or_default())?,
        tool_choice: tool_choice(fields.tool_choice.as_ref(), &tools)?,
        tools,
        parallel_tool_calls: fields.parallel_tool_calls.unwrap_or(true),
        format: options::format(body)?,
        split_reasoning: fields.reasoning_format.as_deref() != Some("none"),
        template_variables: variables,
        continue_final_message: continues,
        add_generation_prompt: fields.add_generation_prompt.unwrap_or(!continues),
        options,
    })
}

fn logprobs(wanted: Option<bool>, top: Option<u32>) -> Result<Option<u32>, ApiError> {
    match (wanted.unwrap_or(false), top) {
        (false, Some(1..)) => {
            Err(ApiError::invalid("top_logprobs", "`top_logprobs` needs `logprobs` to be true"))
        }
        (true, Some(top)) if top > MOST_TOP_LOGPROBS => Err(ApiError::invalid(
            "top_logprobs",
            format!("`top_logprobs` is {top}, but must be at most {MOST_TOP_LOGPROBS}"),
        )),
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, _) => Ok(None),
    }
}

/// Checks messages and brings them into the form that templates expect.
pub(crate) fn messages(messages: &[Json]) -> Result<Vec<Message>, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::invalid("messages", "`messages` is missing or empty"));
    }
    let mut list = Message::list_from_json(messages)?;
    for (index, message) in list.iter_mut().enumerate() {
        check_role(index, message)?;
        check_content(index, message)?;
        message.fields.retain(|_, value| !value.is_null());
    }
    Ok(list)
}

fn check_role(index: usize, message: &mut Message) -> Result<(), ApiError> {
    match message.role.as_str() {
        "system" | "user" | "assistant" | "tool" => {}
        // Templates know it under its older name.
        "developer" => "system".clone_into(&mut message.role),
        "function" => "tool".clone_into(&mut message.role),
        other => {
            let text = "must be system, developer, user, assistant or tool";
            return Err(ApiError::invalid(
                format!("messages[{index}].role"),
                format!("`messages[{index}].role` is {other:?}, but {text}"),
            ));
        }
    }
    Ok(())
}

fn check_content(index: usize, message: &Message) -> Result<(), ApiError> {
    let path = format!("messages[{index}].content");
    match &message.content {
        Json::Null if message.role == "assistant" => Ok(()),
        Json::Null => Err(ApiError::invalid(path.clone(), format!("`{path}` is missing"))),
        Json::Array(parts) => parts.iter().enumerate().try_for_each(|(at, part)| {
            let path = format!("{path}[{at}]");
            match part["type"].as_str() {
                Some("text") if part["text"].is_string() => Ok(()),
                Some("text") => Err(ApiError::invalid(path.clone(), format!("`{path}.text` must be text"))),
                other => {
                    let kind = other.unwrap_or("without a type");
                    Err(ApiError::invalid(
                        path.clone(),
                        format!("`{path}` is {kind}: only text is supported"),
                    ))
                }
            }
        }),
        _ => Ok(()),
    }
}

/// Checks tools.
pub(crate) fn tools(fields: Vec<ToolFields>) -> Result<Vec<Tool>, ApiError> {
    let tool = |(index, tool): (usize, ToolFields)| {
        let path = format!("tools[{index}]");
        let function = tool.function.filter(|_| tool.r#type == "function");
        let function = function
            .ok_or_else(|| ApiError::invalid(path.clone(), format!("`{path}` must be a function")))?;
        if function.name.is_empty() {
            return Err(ApiError::invalid(path.clone(), format!("`{path}.function.name` is empty")));
        }
        let parameters = function.parameters.unwrap_or_else(|| serde_json::json!({"type": "object"}));
        if !parameters.is_object() {
            let path = format!("{path}.function.parameters");
            return Err(ApiError::invalid(path.clone(), format!("`{path}` must be a JSON schema")));
        }
        Ok(Tool { name: function.name, description: function.description, parameters })
    };
    fields.into_iter().enumerate().map(tool).collect()
}

/// Reads `tool_choice`.
pub(super) fn tool_choice(value: Option<&Json>, tools: &[Tool]) -> Result<ToolChoice, ApiError> {
    let wrong = |text: String| ApiError::invalid("tool_choice", text);
    let choice = match value {
        None => ToolChoice::Auto,
        Some(Json::String(word)) => match word.as_str() {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" | "any" => ToolChoice::Required,
            other => {
                return Err(wrong(format!("`tool_choice` is {other:?}, but must be none, auto or required")));
            }
        },
        Some(value) => match value["function"]["name"].as_str() {
            Some(name) => ToolChoice::Named(name.to_owned()),
            None => return Err(wrong("`tool_choice` must name a function".to_owned())),
        },
    };
    match &choice {
        ToolChoice::Named(name) if !tools.iter().any(|tool| tool.name == *name) => {
            Err(wrong(format!("`tool_choice` names {name:?}, which is none of the tools")))
        }
        ToolChoice::Required if tools.is_empty() => {
            Err(wrong("`tool_choice` is required, but there are no tools".to_owned()))
        }
        _ => Ok(choice),
    }
}
