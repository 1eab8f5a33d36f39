//! A chat request of any API.

use std::sync::Arc;

use minfer::text::{DecodeOptions, RenderInput};
use minfer::{Message, Model};
use serde_json::{Map, Value as Json};

use super::grammar::{self, Grammar};
use super::options::{Options, OutputFormat};
use super::run::{Generation, Terms, TextOf};
use super::split::Splitter;
use super::syntax::{self, CallSyntax};
use super::tool_text;
use crate::auth::Salt;
use crate::error::{ApiError, ErrorKind};
use crate::state::{App, Served};

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

/// Renders a request's prompt and starts its answers.
///
/// # Errors
/// The template refuses the messages, the model cannot do what is asked, or there is no place.
pub(crate) async fn start(
    app: &Arc<App>,
    served: &Served,
    request: ChatRequest,
    salt: Salt,
) -> Result<Generation, ApiError> {
    let handle = served.clone();
    // Long conversations take a while to render and to encode: not on the threads of the HTTP
    // runtime.
    let prompt = run_blocking(move || {
        let model = &handle.model;
        let input = render_input(model, &request)?;
        let prompt = model.encode_rendering(&input)?;
        let in_reasoning = ends_in_reasoning(model, &prompt);
        let grammar = form(&handle, &request, in_reasoning)?;
        Ok::<_, ApiError>((request, prompt, in_reasoning, grammar))
    });
    let (request, prompt, in_reasoning, grammar) = prompt.await??;
    let names: Vec<String> = match request.tool_choice {
        ToolChoice::None => Vec::new(),
        _ => request.tools.iter().map(|tool| tool.name.clone()).collect(),
    };
    let text = || match !request.split_reasoning && names.is_empty() {
        true => TextOf::Plain,
        false => TextOf::Split(Splitter::new(
            request.split_reasoning,
            in_reasoning,
            names.clone(),
            request.parallel_tool_calls,
        )),
    };
    let terms =
        Terms { options: &request.options, salt: salt.0, prompt_logprobs: None, grammar: grammar.as_ref() };
    Generation::start(app, served, vec![prompt], &terms, text)
}

/// The prompt's text, as the chat template makes it.
pub(crate) async fn rendered(model: &Model, request: ChatRequest) -> Result<String, ApiError> {
    let model = model.clone();
    run_blocking(move || {
        let input = render_input(&model, &request)?;
        Ok(model.usable_template()?.render(&input)?)
    })
    .await?
}

/// Tokens of the prompt.
pub(crate) async fn count(model: &Model, request: ChatRequest) -> Result<usize, ApiError> {
    let model = model.clone();
    run_blocking(move || Ok(model.encode_rendering(&render_input(&model, &request)?)?.len())).await?
}

/// Runs work that may take long on a thread of its own.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let failed = |error| ApiError::new(ErrorKind::Server, format!("rendering the prompt failed: {error}"));
    tokio::task::spawn_blocking(work).await.map_err(failed)
}

/// The grammar of what a request forces: tool calls, or a form of the answer.
fn form(served: &Served, request: &ChatRequest, in_reasoning: bool) -> Result<Option<Grammar>, ApiError> {
    let (tools, several): (Vec<&Tool>, bool) = match &request.tool_choice {
        ToolChoice::Required => (request.tools.iter().collect(), request.parallel_tool_calls),
        ToolChoice::Named(name) => (request.tools.iter().filter(|tool| tool.name == *name).collect(), false),
        ToolChoice::Auto | ToolChoice::None => (Vec::new(), false),
    };
    let (grammar, field) = match tools.as_slice() {
        [] => (grammar::of_format(&request.format), "response_format"),
        tools => {
            let syntax = CallSyntax::of_template(served.model.usable_template()?.source());
            (Some(syntax.grammar(tools, several, served.model.tokenizer())), "tools")
        }
    };
    let Some(grammar) = grammar else { return Ok(None) };
    let grammar = if in_reasoning { syntax::after_reasoning(grammar) } else { grammar };
    served.compile(grammar, field).map(Some)
}

fn render_input(model: &Model, request: &ChatRequest) -> Result<RenderInput, ApiError> {
    let tools: Vec<Json> = match request.tool_choice {
        ToolChoice::None => Vec::new(),
        _ => request.tools.iter().map(Tool::to_json).collect(),
    };
    let mut messages = request.messages.clone();
    let template = model.usable_template()?.source();
    if !tools.is_empty() && !template.contains("tools") {
        tool_text::describe(&mut messages, &tools);
    }
    if !template.contains("tool_calls") {
        tool_text::spell_calls(&mut messages);
    }
    Ok(RenderInput {
        messages,
        add_generation_prompt: request.add_generation_prompt,
        continue_final_message: request.continue_final_message,
        tools,
        variables: request.template_variables.clone(),
        now: None,
    })
}

/// Whether the prompt ends inside of reasoning that its template has opened.
fn ends_in_reasoning(model: &Model, prompt: &[u32]) -> bool {
    let last = &prompt[prompt.len().saturating_sub(8)..];
    let text = model.tokenizer().decode(last, DecodeOptions { show_special: true });
    text.trim_end().ends_with("<think>")
}
