//! `POST /api/chat`.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::answers::{Shape, Writer};
use super::options::{self, Common};
use crate::auth::Salt;
use crate::error::ApiError;
use crate::generate::chat::{ChatRequest, ToolChoice};
use crate::json::JsonBody;
use crate::openai::chat_request;
use crate::state::App;
use crate::{generate, stream};

#[derive(Deserialize)]
struct Fields {
    messages: Option<Vec<Json>>,
    tools: Option<Vec<chat_request::ToolFields>>,
}

/// Answers messages.
pub(crate) async fn chat(
    State(app): State<Arc<App>>,
    Extension(salt): Extension<Salt>,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let served = app.served(body.model()).await?;
    let Common { model, options, format, template_variables, stream } =
        options::read(&body, served.model.engine().config().n_slots)?;
    let Fields { messages, tools } = body.read()?;
    let messages = messages.unwrap_or_default();
    if messages.is_empty() {
        // Clients ask so whether the model is loaded.
        let loaded = json!({
            "model": served.name, "created_at": crate::id::timestamp(), "done": true, "done_reason": "load",
            "message": {"role": "assistant", "content": ""},
        });
        return Ok(axum::Json(loaded).into_response());
    }
    let request = ChatRequest {
        model,
        messages: chat_request::messages(&messages.into_iter().map(with_names).collect::<Vec<_>>())?,
        tools: chat_request::tools(tools.unwrap_or_default())?,
        tool_choice: ToolChoice::Auto,
        parallel_tool_calls: true,
        format,
        split_reasoning: true,
        template_variables,
        continue_final_message: false,
        add_generation_prompt: true,
        options,
    };
    let mut generation = generate::chat::start(&app, &served, request, salt).await?;
    let writer = Writer::new(&served.name, Shape::Message);
    if stream {
        generation.begin().await?;
        return Ok(stream::lines(generation, writer));
    }
    writer.whole(generation).await.map(|json| axum::Json(json).into_response())
}

/// A message with the names of fields that templates know.
fn with_names(mut message: Json) -> Json {
    if let Some(fields) = message.as_object_mut() {
        for (theirs, ours) in [("thinking", "reasoning_content"), ("tool_name", "name")] {
            if let Some(value) = fields.remove(theirs) {
                fields.insert(ours.to_owned(), value);
            }
        }
        if fields.get("images").is_some_and(|images| images.as_array().is_none_or(|images| images.is_empty()))
        {
            fields.remove("images");
        }
    }
    message
}
