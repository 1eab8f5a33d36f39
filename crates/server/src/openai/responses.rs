//! `POST /v1/responses`. Nothing is stored: every request carries its whole conversation.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value as Json, json};

use super::responses_request::{self, Echo};
use crate::auth::Salt;
use crate::error::{ApiError, ErrorStyle};
use crate::generate::blocks::{Block, Blocks, Change, Kind};
use crate::generate::output::{Delta, Finish, FinishReason, Output, Piece};
use crate::generate::run::Generation;
use crate::json::JsonBody;
use crate::state::App;
use crate::stream::{self, Chunk, ChunkWriter};
use crate::{generate, id};

/// Answers an input.
pub(crate) async fn responses(
    State(app): State<Arc<App>>,
    Extension(salt): Extension<Salt>,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let served = app.served(body.model()).await?;
    let (request, echo) = responses_request::read(&body, served.model.engine().config().n_slots)?;
    let mut generation = generate::chat::start(&app, &served, request, salt).await?;
    let streams = echo.stream;
    let writer = Writer {
        id: id::new("resp_"),
        created: id::now(),
        model: served.name.clone(),
        echo,
        blocks: Blocks::default(),
        items: Vec::new(),
        finish: None,
        sequence: 0,
    };
    if streams {
        generation.begin().await?;
        return Ok(stream::events(generation, writer));
    }
    writer.whole(generation).await.map(|json| axum::Json(json).into_response())
}

/// Writes a response, whole or as events.
struct Writer {
    id: String,
    created: u64,
    model: String,
    echo: Echo,
    blocks: Blocks,
    /// Identifiers of the output's items, one for each block.
    items: Vec<String>,
    finish: Option<Finish>,
    /// Number of the next event.
    sequence: u64,
}

impl Writer {
    fn response(&self, status: &str) -> Json {
        let complete = status != "in_progress";
        let output: Vec<Json> = match complete {
            true => {
                self.blocks.all().iter().zip(&self.items).map(|(block, id)| item(block, id, true)).collect()
            }
            false => Vec::new(),
        };
        let mut response = self.echo.fields.clone();
        let own = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "model": self.model,
            "output": output,
            "error": null,
            "incomplete_details": (status == "incomplete").then(|| json!({"reason": "max_output_tokens"})),
            "usage": self.finish.as_ref().map(usage),
        });
        if let (Some(response), Json::Object(own)) = (response.as_object_mut(), own) {
            response.extend(own);
        }
        response
    }

    fn status(&self) -> &'static str {
        match self.finish.as_ref().map(|finish| &finish.reason) {
            Some(FinishReason::Length) => "incomplete",
            _ => "completed",
        }
    }

    async fn whole(mut self, mut generation: Generation) -> Result<Json, ApiError> {
        while let Some(output) = generation.next().await {
            self.add(output?);
        }
        Ok(self.response(self.status()))
    }

    /// Adds an output; the events that tell of it, without their numbers.
    fn add(&mut self, output: Output) -> Vec<Json> {
        match output.piece {
            Piece::Prompt(_) => Vec::new(),
            Piece::Token { deltas, .. } => self.add_deltas(deltas),
            Piece::Finished(mut finish) => {
                let mut events = self.add_deltas(std::mem::take(&mut finish.deltas));
                let items = &mut self.items;
                events.extend(self.blocks.end(|change| changed(change, items)));
                self.finish = Some(finish);
                events
            }
        }
    }

    fn add_deltas(&mut self, deltas: Vec<Delta>) -> Vec<Json> {
        let (blocks, items) = (&mut self.blocks, &mut self.items);
        deltas.into_iter().flat_map(|delta| blocks.add(delta, |change| changed(change, items))).collect()
    }

    fn numbered(&mut self, events: Vec<Json>) -> Vec<Chunk> {
        let number = |mut event: Json| {
            event["sequence_number"] = self.sequence.into();
            self.sequence += 1;
            Chunk::typed(&event)
        };
        events.into_iter().map(number).collect()
    }
}

/// An item of the output.
fn item(block: &Block, id: &str, complete: bool) -> Json {
    let status = if complete { "completed" } else { "in_progress" };
    let parts: Vec<Json> = if complete { vec![part(block)] } else { Vec::new() };
    match &block.kind {
        Kind::Text => json!({
            "type": "message", "id": id, "status": status, "role": "assistant", "content": parts,
        }),
        Kind::Reasoning => json!({
            "type": "reasoning", "id": id, "status": status, "summary": [], "content": parts,
        }),
        Kind::Call { id: call_id, name } => json!({
            "type": "function_call", "id": id, "status": status, "call_id": call_id, "name": name,
            "arguments": if complete { block.text.as_str() } else { "" },
        }),
    }
}

/// The content of a message or of reasoning.
fn part(block: &Block) -> Json {
    match block.kind {
        Kind::Reasoning => json!({"type": "reasoning_text", "text": block.text}),
        _ => json!({"type": "output_text", "text": block.text, "annotations": [], "logprobs": []}),
    }
}

fn changed(change: Change<'_>, items: &mut Vec<String>) -> Vec<Json> {
    let at = |index: usize, id: &str, event: Json| {
        let mut event = event;
        event["output_index"] = index.into();
        event["item_id"] = id.into();
        event
    };
    match change {
        Change::Begins(index, block) => {
            let prefix = match block.kind {
                Kind::Text => "msg_",
                Kind::Reasoning => "rs_",
                Kind::Call { .. } => "fc_",
            };
            let id = id::new(prefix);
            let empty = Block { text: String::new(), ..block.clone() };
            let mut events = vec![json!({
                "type": "response.output_item.added", "output_index": index, "item": item(block, &id, false),
            })];
            if !matches!(block.kind, Kind::Call { .. }) {
                let event = json!({
                    "type": "response.content_part.added", "content_index": 0, "part": part(&empty),
                });
                events.push(at(index, &id, event));
            }
            items.push(id);
            events
        }
        Change::GoesOn(index, block, text) => {
            let event = match block.kind {
                Kind::Text => json!({
                    "type": "response.output_text.delta", "content_index": 0, "delta": text, "logprobs": [],
                }),
                Kind::Reasoning => {
                    json!({"type": "response.reasoning_text.delta", "content_index": 0, "delta": text})
                }
                Kind::Call { .. } => {
                    json!({"type": "response.function_call_arguments.delta", "delta": text})
                }
            };
            vec![at(index, &items[index], event)]
        }
        Change::Ends(index, block) => {
            let id = items[index].clone();
            let mut events = match &block.kind {
                Kind::Text => vec![json!({
                    "type": "response.output_text.done", "content_index": 0, "text": block.text,
                    "logprobs": [],
                })],
                Kind::Reasoning => vec![json!({
                    "type": "response.reasoning_text.done", "content_index": 0, "text": block.text,
                })],
                Kind::Call { name, .. } => vec![json!({
                    "type": "response.function_call_arguments.done", "name": name, "arguments": block.text,
                })],
            };
            if !matches!(block.kind, Kind::Call { .. }) {
                let event = json!({
                    "type": "response.content_part.done", "content_index": 0, "part": part(block),
                });
                events.push(event);
            }
            let mut events: Vec<Json> = events.into_iter().map(|event| at(index, &id, event)).collect();
            events.push(json!({
                "type": "response.output_item.done", "output_index": index, "item": item(block, &id, true),
            }));
            events
        }
    }
}

fn usage(finish: &Finish) -> Json {
    json!({
        "input_tokens": finish.usage.prompt,
        "input_tokens_details": {"cached_tokens": finish.usage.reused},
        "output_tokens": finish.usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": finish.usage.prompt + finish.usage.completion,
    })
}

impl ChunkWriter for Writer {
    fn begin(&mut self) -> Vec<Chunk> {
        let response = self.response("in_progress");
        let event = |kind: &str| json!({"type": kind, "response": response});
        self.numbered(vec![event("response.created"), event("response.in_progress")])
    }

    fn output(&mut self, output: Output) -> Vec<Chunk> {
        let events = self.add(output);
        self.numbered(events)
    }

    fn end(&mut self) -> Vec<Chunk> {
        let status = self.status();
        let event = json!({"type": format!("response.{status}"), "response": self.response(status)});
        self.numbered(vec![event])
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Chunk> {
        let mut response = self.response("failed");
        response["error"] = json!({"code": error.kind.openai_type(), "message": error.message});
        let failed = json!({"type": "response.failed", "response": response});
        let error = ErrorStyle::OpenAi.json(error)["error"].clone();
        let told = json!({
            "type": "error", "code": error["type"], "message": error["message"], "param": error["param"],
        });
        self.numbered(vec![told, failed])
    }
}
