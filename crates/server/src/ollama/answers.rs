//! Answers, whole or a JSON object a line.

use serde_json::{Value as Json, json};

use crate::error::{ApiError, ErrorStyle};
use crate::generate::blocks::{Block, Blocks, Change, Kind};
use crate::generate::output::{Delta, Finish, FinishReason, Output, Piece};
use crate::generate::run::Generation;
use crate::id;
use crate::stream::{Chunk, ChunkWriter};

/// Writes an answer of one of two routes.
pub(super) struct Writer {
    pub(super) model: String,
    pub(super) shape: Shape,
    blocks: Blocks,
    finish: Option<Finish>,
}

/// Where a route puts the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// `message.content`, of `/api/chat`.
    Message,
    /// `response`, of `/api/generate`.
    Response,
}

impl Writer {
    pub(super) fn new(model: &str, shape: Shape) -> Writer {
        Writer { model: model.to_owned(), shape, blocks: Blocks::default(), finish: None }
    }

    pub(super) async fn whole(mut self, mut generation: Generation) -> Result<Json, ApiError> {
        let mut complete = Vec::new();
        while let Some(output) = generation.next().await {
            complete.extend(self.add(output?));
        }
        let text = |kind: &Kind| {
            let texts = self.blocks.all().iter().filter(|block| block.kind == *kind);
            texts.map(|block| block.text.as_str()).collect::<String>()
        };
        let calls: Vec<Json> = self.blocks.all().iter().filter_map(call).collect();
        let content = self.content(&text(&Kind::Text), &text(&Kind::Reasoning), &calls);
        Ok(self.last(content))
    }

    /// Adds an output; gives what is new, as content.
    fn add(&mut self, output: Output) -> Vec<Json> {
        let shape = self.shape;
        let tell = |change: Change<'_>| -> Vec<Json> {
            match change {
                Change::GoesOn(_, block, text) => match block.kind {
                    Kind::Text => vec![content(shape, text, "", &[])],
                    Kind::Reasoning => vec![content(shape, "", text, &[])],
                    Kind::Call { .. } => Vec::new(),
                },
                // Calls come whole.
                Change::Ends(_, block) => {
                    call(block).map(|call| content(shape, "", "", &[call])).into_iter().collect()
                }
                Change::Begins(..) => Vec::new(),
            }
        };
        let blocks = &mut self.blocks;
        let mut add = |deltas: Vec<Delta>| -> Vec<Json> {
            deltas.into_iter().flat_map(|delta| blocks.add(delta, tell)).collect()
        };
        match output.piece {
            Piece::Prompt(_) => Vec::new(),
            Piece::Token { deltas, .. } => add(deltas),
            Piece::Finished(mut finish) => {
                let mut contents = add(std::mem::take(&mut finish.deltas));
                contents.extend(self.blocks.end(tell));
                self.finish = Some(finish);
                contents
            }
        }
    }

    fn content(&self, text: &str, thinking: &str, calls: &[Json]) -> Json {
        content(self.shape, text, thinking, calls)
    }

    fn object(&self, content: Json, done: bool) -> Json {
        let mut object = json!({"model": self.model, "created_at": id::timestamp(), "done": done});
        if let (Some(object), Json::Object(content)) = (object.as_object_mut(), content) {
            object.extend(content);
        }
        object
    }

    /// The last object, with counts and times in nanoseconds.
    fn last(&self, content: Json) -> Json {
        let mut object = self.object(content, true);
        let Some(finish) = &self.finish else { return object };
        let (usage, timings) = (&finish.usage, &finish.timings);
        let nanoseconds = |time: std::time::Duration| time.as_nanos() as u64;
        let last = json!({
            "done_reason": if finish.reason == FinishReason::Length { "length" } else { "stop" },
            "total_duration": nanoseconds(timings.queued + timings.prompt + timings.predicted),
            "load_duration": 0,
            "prompt_eval_count": usage.prompt,
            "prompt_eval_duration": nanoseconds(timings.prompt),
            "eval_count": usage.completion,
            "eval_duration": nanoseconds(timings.predicted),
        });
        if let (Some(object), Json::Object(last)) = (object.as_object_mut(), last) {
            object.extend(last);
        }
        object
    }
}

fn call(block: &Block) -> Option<Json> {
    let Kind::Call { id, name } = &block.kind else { return None };
    let arguments: Json = serde_json::from_str(&block.text).unwrap_or_else(|_| json!({}));
    Some(json!({"id": id, "function": {"name": name, "arguments": arguments}}))
}

fn content(shape: Shape, text: &str, thinking: &str, calls: &[Json]) -> Json {
    let (mut fields, place) = match shape {
        Shape::Message => (json!({"role": "assistant", "content": text}), Some("message")),
        Shape::Response => (json!({"response": text}), None),
    };
    if !thinking.is_empty() {
        fields["thinking"] = thinking.into();
    }
    if !calls.is_empty() {
        fields["tool_calls"] = calls.into();
    }
    match place {
        Some(place) => json!({ place: fields }),
        None => fields,
    }
}

impl ChunkWriter for Writer {
    fn begin(&mut self) -> Vec<Chunk> {
        Vec::new()
    }

    fn output(&mut self, output: Output) -> Vec<Chunk> {
        let contents = self.add(output);
        contents.into_iter().map(|content| self.object(content, false).into()).collect()
    }

    fn end(&mut self) -> Vec<Chunk> {
        vec![self.last(self.content("", "", &[])).into()]
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Chunk> {
        vec![ErrorStyle::Ollama.json(error).into()]
    }
}
