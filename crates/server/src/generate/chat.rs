//! A chat request of any API.

use minfer::Message;
use serde_json::{Map, Value as Json};

use super::options::{Options, OutputFormat};

/// Messages to answer, perhaps by calling tools.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ChatRequest {
    /// The model that the client named.
    pub model: Option<String>,
    /// The messages, oldest first, in the shape of OpenAI's chat API.
    pub messages: Vec<Message>,
    /// Functions that the model may call.
    pub tools: Vec<Tool>,
    /// Whether it may, or must, call one.
    pub tool_choice: ToolChoice,
    /// Whether one answer may call several.
    pub parallel_tool_calls: bool,
    /// The form of the answer's text.
    pub format: OutputFormat,
    /// Whether text of the model's reasoning is reported apart from the answer.
    pub split_reasoning: bool,
    /// Variables for the chat template, such as `enable_thinking`.
    pub template_variables: Map<String, Json>,
    /// The last message is an answer that the model continues.
    pub continue_final_message: bool,
    /// The prompt ends with the opening of the assistant's next message.
    pub add_generation_prompt: bool,
    /// How answers are generated.
    pub options: Options,
}

/// A function that the model may call.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// JSON schema of its arguments.
    pub parameters: Json,
}

impl Tool {
    /// The tool in the shape of OpenAI's chat API, as chat templates expect it.
    pub fn to_json(&self) -> Json {
        let mut function = Map::new();
        function.insert("name".to_owned(), self.name.clone().into());
        if let Some(description) = &self.description {
            function.insert("description".to_owned(), description.clone().into());
        }
        function.insert("parameters".to_owned(), self.parameters.clone());
        serde_json::json!({"type": "function", "function": function})
    }
}

/// Whether the model may, or must, call a tool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// It may.
    #[default]
    Auto,
    /// It may not.
    None,
    /// It must call at least one.
    Required,
    /// It must call this one.
    Named(String),
}
