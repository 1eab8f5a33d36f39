//! `POST /v1/messages` and `POST /v1/messages/count_tokens`.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::request;
use crate::auth::Salt;
use crate::error::{ApiError, ErrorStyle};
use crate::generate::blocks::{Block, Blocks, Change, Kind};
use crate::generate::output::{Delta, Finish, FinishReason, Output, Piece};
use crate::generate::run::Generation;
use crate::json::JsonBody;
use crate::state::App;
use crate::stream::{self, Chunk, ChunkWriter};
use crate::{generate, id};

#[derive(Deserialize)]
struct Fields {
    stream: Option<bool>,
    max_tokens: Option<i64>,
}

/// Answers messages.
pub(crate) async fn messages(
    State(app): State<Arc<App>>,
    Extension(salt): Extension<Salt>,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let served = app.served(body.model()).await?;
    let fields: Fields = body.read()?;
    if fields.max_tokens.is_none() {
        return Err(ApiError::invalid("max_tokens", "`max_tokens` is missing"));
    }
    let request = request::read(&body, served.model.engine().config().n_slots)?;
    let mut generation = generate::chat::start(&app, &served, request, salt).await?;
    let writer = Writer {
        id: id::new("msg_"),
        model: served.name.clone(),
        prompt_tokens: generation.prompt_tokens(),
        blocks: Blocks::default(),
        finish: None,
    };
    if fields.stream.unwrap_or(false) {
        generation.begin().await?;
        return Ok(stream::events(generation, writer));
    }
    writer.whole(generation).await.map(|json| axum::Json(json).into_response())
}

/// Counts the tokens of a prompt.
pub(crate) async fn count_tokens(
    State(app): State<Arc<App>>,
    body: JsonBody,
) -> Result<axum::Json<Json>, ApiError> {
    let served = app.served(body.model()).await?;
    let request = request::read(&body, served.model.engine().config().n_slots)?;
    let tokens = generate::chat::count(&served.model, request).await?;
    Ok(axum::Json(json!({ "input_tokens": tokens })))
}

/// Writes an answer, whole or as events.
struct Writer {
    id: String,
    model: String,
    prompt_tokens: usize,
    blocks: Blocks,
    finish: Option<Finish>,
}

impl Writer {
    fn message(&self, content: Json) -> Json {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": null,
            "stop_sequence": null,
            "usage": {"input_tokens": self.prompt_tokens, "output_tokens": 0},
        })
    }

    async fn whole(mut self, mut generation: Generation) -> Result<Json, ApiError> {
        while let Some(output) = generation.next().await {
            self.add(output?, |_| Vec::new());
        }
        let content = self.blocks.all().iter().map(|block| content(block, &block.text)).collect();
        let mut message = self.message(content);
        if let Some(finish) = &self.finish {
            (message["stop_reason"], message["stop_sequence"]) = stop(&finish.reason);
            message["usage"] = usage(finish);
        }
        Ok(message)
    }

    fn add(&mut self, output: Output, tell: impl Fn(Change<'_>) -> Vec<Chunk>) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        let mut add = |deltas: Vec<Delta>| {
            chunks.extend(deltas.into_iter().flat_map(|delta| self.blocks.add(delta, &tell)));
        };
        match output.piece {
            Piece::Prompt(_) => {}
            Piece::Token { deltas, .. } => add(deltas),
            Piece::Finished(mut finish) => {
                add(std::mem::take(&mut finish.deltas));
                chunks.extend(self.blocks.end(&tell));
                self.finish = Some(finish);
            }
        }
        chunks
    }
}

/// A block of the answer's content.
fn content(block: &Block, text: &str) -> Json {
    match &block.kind {
        Kind::Text => json!({"type": "text", "text": text}),
        Kind::Reasoning => json!({"type": "thinking", "thinking": text, "signature": ""}),
        Kind::Call { id, name } => {
            // What breaks off in the middle of its arguments has no JSON value.
            let input: Json = serde_json::from_str(text).unwrap_or_else(|_| json!({}));
            json!({"type": "tool_use", "id": id, "name": name, "input": input})
        }
    }
}

fn event(change: Change<'_>) -> Vec<Chunk> {
    let data = match change {
        Change::Begins(index, block) => {
            json!({"type": "content_block_start", "index": index, "content_block": content(block, "")})
        }
        Change::GoesOn(index, block, text) => {
            let delta = match &block.kind {
                Kind::Text => json!({"type": "text_delta", "text": text}),
                Kind::Reasoning => json!({"type": "thinking_delta", "thinking": text}),
                Kind::Call { .. } => json!({"type": "input_json_delta", "partial_json": text}),
            };
            json!({"type": "content_block_delta", "index": index, "delta": delta})
        }
        Change::Ends(index, _) => json!({"type": "content_block_stop", "index": index}),
    };
    vec![Chunk::typed(&data)]
}

/// `stop_reason` and `stop_sequence`.
fn stop(reason: &FinishReason) -> (Json, Json) {
    match reason {
        FinishReason::Stop => ("end_turn".into(), Json::Null),
        FinishReason::StopString(text) => ("stop_sequence".into(), text.as_str().into()),
        FinishReason::Length => ("max_tokens".into(), Json::Null),
        FinishReason::ToolCalls => ("tool_use".into(), Json::Null),
    }
}

/// Token counts: those of the prompt that were cached count apart.
fn usage(finish: &Finish) -> Json {
    json!({
        "input_tokens": finish.usage.prompt - finish.usage.reused,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": finish.usage.reused,
        "output_tokens": finish.usage.completion,
    })
}

impl ChunkWriter for Writer {
    fn begin(&mut self) -> Vec<Chunk> {
        vec![Chunk::typed(&json!({"type": "message_start", "message": self.message(json!([]))}))]
    }

    fn output(&mut self, output: Output) -> Vec<Chunk> {
        self.add(output, event)
    }

    fn end(&mut self) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        if let Some(finish) = &self.finish {
            let (reason, sequence) = stop(&finish.reason);
            chunks.push(Chunk::typed(&json!({
                "type": "message_delta",
                "delta": {"stop_reason": reason, "stop_sequence": sequence},
                "usage": usage(finish),
            })));
        }
        chunks.push(Chunk::typed(&json!({"type": "message_stop"})));
        chunks
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Chunk> {
        vec![Chunk::typed(&ErrorStyle::Anthropic.json(error))]
    }
}
