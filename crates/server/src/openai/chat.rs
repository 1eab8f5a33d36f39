//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use minfer::Model;
use serde_json::{Map, Value as Json, json};

use super::chat_request;
use super::logprobs::chat_entry;
use super::stream_options::Streaming;
use super::usage::{Totals, reason};
use crate::auth::Salt;
use crate::error::{ApiError, ErrorStyle};
use crate::generate::chat::ChatRequest;
use crate::generate::output::{Delta, Output, Piece};
use crate::generate::run::Generation;
use crate::json::JsonBody;
use crate::state::{App, Served};
use crate::stream::{self, Chunk, ChunkWriter};
use crate::{generate, id};

/// Answers messages.
pub(crate) async fn completions(
    State(app): State<Arc<App>>,
    Extension(salt): Extension<Salt>,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let served = app.served(body.model()).await?;
    let streaming = Streaming::read(&body)?;
    let request = chat_request::read(&body, served.model.engine().config().n_slots)?;
    let meta = Meta::new(&served, &request);
    let mut generation = generate::chat::start(&app, &served, request, salt).await?;
    if streaming.stream {
        generation.begin().await?;
        let include_usage = streaming.include_usage;
        return Ok(stream::events(generation, ChatStream { meta, totals: Totals::default(), include_usage }));
    }
    whole(generation, &meta).await.map(|json| axum::Json(json).into_response())
}

/// What all chunks of a response have in common.
struct Meta {
    id: String,
    created: u64,
    name: String,
    model: Model,
    n: u32,
    logprobs: bool,
}

impl Meta {
    fn new(served: &Served, request: &ChatRequest) -> Meta {
        Meta {
            id: id::new("chatcmpl-"),
            created: id::now(),
            name: served.name.clone(),
            model: served.model.clone(),
            n: request.options.n,
            logprobs: request.options.logprobs.is_some(),
        }
    }

    fn object(&self, object: &str, choices: Json) -> Json {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.name,
            "system_fingerprint": crate::FINGERPRINT,
            "choices": choices,
        })
    }
}

/// An answer that is put together from its deltas.
#[derive(Debug, Default)]
struct Answer {
    text: String,
    reasoning: String,
    calls: Vec<Json>,
    arguments: Vec<String>,
    logprobs: Vec<Json>,
    reason: &'static str,
}

impl Answer {
    fn add(&mut self, delta: Delta) {
        match delta {
            Delta::Text(text) => self.text.push_str(&text),
            Delta::Reasoning(text) => self.reasoning.push_str(&text),
            Delta::ToolCall { id, name, .. } => {
                self.calls.push(json!({"id": id, "type": "function", "function": {"name": name}}));
                self.arguments.push(String::new());
            }
            Delta::ToolArguments { index, fragment } => {
                if let Some(arguments) = self.arguments.get_mut(index as usize) {
                    arguments.push_str(&fragment);
                }
            }
        }
    }

    fn to_json(&self, index: usize, logprobs: bool) -> Json {
        let mut message = Map::new();
        message.insert("role".to_owned(), "assistant".into());
        let no_text = self.text.is_empty() && !self.calls.is_empty();
        message.insert("content".to_owned(), if no_text { Json::Null } else { self.text.clone().into() });
        if !self.reasoning.is_empty() {
            message.insert("reasoning_content".to_owned(), self.reasoning.clone().into());
        }
        if !self.calls.is_empty() {
            let mut calls = self.calls.clone();
            for (call, arguments) in calls.iter_mut().zip(&self.arguments) {
                call["function"]["arguments"] = arguments.clone().into();
            }
            message.insert("tool_calls".to_owned(), calls.into());
        }
        let logprobs = if logprobs { json!({"content": self.logprobs}) } else { Json::Null };
        json!({"index": index, "message": message, "finish_reason": self.reason, "logprobs": logprobs})
    }
}

/// Waits for all answers.
async fn whole(mut generation: Generation, meta: &Meta) -> Result<Json, ApiError> {
    let mut answers: Vec<Answer> = (0..meta.n).map(|_| Answer::default()).collect();
    let mut totals = Totals::default();
    while let Some(output) = generation.next().await {
        let Output { choice, piece } = output?;
        let answer = &mut answers[choice as usize];
        match piece {
            Piece::Prompt(_) => {}
            Piece::Token { deltas, logprobs } => {
                deltas.into_iter().for_each(|delta| answer.add(delta));
                answer.logprobs.extend(logprobs.map(|scores| chat_entry(&meta.model, &scores)));
            }
            Piece::Finished(mut finish) => {
                std::mem::take(&mut finish.deltas).into_iter().for_each(|delta| answer.add(delta));
                answer.reason = reason(&finish.reason);
                totals.add(choice, meta.n, &finish);
            }
        }
    }
    let choices = answers.iter().enumerate().map(|(index, answer)| answer.to_json(index, meta.logprobs));
    let mut object = meta.object("chat.completion", choices.collect());
    object["usage"] = totals.to_json();
    object["timings"] = totals.timings();
    Ok(object)
}

/// Writes chunks of a stream.
struct ChatStream {
    meta: Meta,
    totals: Totals,
    include_usage: bool,
}

impl ChatStream {
    fn chunk(&self, choice: u32, delta: Json, finish_reason: Option<&str>, logprobs: Json) -> Json {
        let choice =
            json!({"index": choice, "delta": delta, "finish_reason": finish_reason, "logprobs": logprobs});
        self.meta.object("chat.completion.chunk", json!([choice]))
    }

    fn deltas(&self, choice: u32, deltas: Vec<Delta>, mut logprobs: Json) -> Vec<Json> {
        let mut chunks = Vec::new();
        for delta in deltas {
            let delta = delta_json(delta);
            chunks.push(self.chunk(choice, delta, None, std::mem::take(&mut logprobs)));
        }
        if !logprobs.is_null() {
            chunks.push(self.chunk(choice, json!({}), None, logprobs));
        }
        chunks
    }
}

fn delta_json(delta: Delta) -> Json {
    match delta {
        Delta::Text(text) => json!({"content": text}),
        Delta::Reasoning(text) => json!({"reasoning_content": text}),
        Delta::ToolCall { index, id, name } => json!({"tool_calls": [
            {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
        ]}),
        Delta::ToolArguments { index, fragment } => {
            json!({"tool_calls": [{"index": index, "function": {"arguments": fragment}}]})
        }
    }
}

impl ChunkWriter for ChatStream {
    fn begin(&mut self) -> Vec<Chunk> {
        let role = json!({"role": "assistant", "content": ""});
        (0..self.meta.n).map(|choice| self.chunk(choice, role.clone(), None, Json::Null).into()).collect()
    }

    fn output(&mut self, output: Output) -> Vec<Chunk> {
        let Output { choice, piece } = output;
        let chunks = match piece {
            Piece::Prompt(_) => Vec::new(),
            Piece::Token { deltas, logprobs } => {
                let logprobs =
                    logprobs.map(|scores| json!({"content": [chat_entry(&self.meta.model, &scores)]}));
                self.deltas(choice, deltas, logprobs.unwrap_or_default())
            }
            Piece::Finished(mut finish) => {
                let mut chunks = self.deltas(choice, std::mem::take(&mut finish.deltas), Json::Null);
                self.totals.add(choice, self.meta.n, &finish);
                chunks.push(self.chunk(choice, json!({}), Some(reason(&finish.reason)), Json::Null));
                chunks
            }
        };
        chunks.into_iter().map(Chunk::from).collect()
    }

    fn end(&mut self) -> Vec<Chunk> {
        let usage = self.include_usage.then(|| {
            let mut chunk = self.meta.object("chat.completion.chunk", json!([]));
            chunk["usage"] = self.totals.to_json();
            chunk["timings"] = self.totals.timings();
            chunk.into()
        });
        usage.into_iter().chain([super::done()]).collect()
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Chunk> {
        vec![ErrorStyle::OpenAi.json(error).into(), super::done()]
    }
}
