//! `POST /infill`: fills a gap, in the shape of llama.cpp's server.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::auth::Salt;
use crate::error::{ApiError, ErrorStyle};
use crate::generate::chat::run_blocking;
use crate::generate::infill::{self, Gap};
use crate::generate::output::{Delta, Finish, FinishReason, Output, Piece};
use crate::generate::run::{Generation, Terms, TextOf};
use crate::json::JsonBody;
use crate::openai::options;
use crate::openai::usage::timings;
use crate::state::App;
use crate::stream::{self, Chunk, ChunkWriter};

#[derive(Deserialize)]
struct Fields {
    input_prefix: Option<String>,
    input_suffix: Option<String>,
    input_extra: Option<Vec<ExtraFile>>,
    prompt: Option<String>,
    stream: Option<bool>,
}

#[derive(Deserialize)]
struct ExtraFile {
    filename: Option<String>,
    text: String,
}

/// Fills a gap.
pub(crate) async fn infill(
    State(app): State<Arc<App>>,
    Extension(salt): Extension<Salt>,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let served = app.served(body.model()).await?;
    let fields: Fields = body.read()?;
    let mut options = options::read(&body, served.model.engine().config().n_slots)?;
    options.n = 1;
    let files = fields.input_extra.unwrap_or_default().into_iter();
    let gap = Gap {
        prefix: fields.input_prefix.unwrap_or_default(),
        suffix: fields.input_suffix.unwrap_or_default(),
        beginning: fields.prompt.unwrap_or_default(),
        files: files.map(|file| (file.filename.unwrap_or_default(), file.text)).collect(),
    };
    let model = served.model.clone();
    let prompt = run_blocking(move || infill::prompt(&model, &gap)).await??;
    let terms = Terms { options: &options, salt: salt.0, prompt_logprobs: None, grammar: None };
    let mut generation = Generation::start(&app, &served, vec![prompt], &terms, || TextOf::Plain)?;
    let mut writer = Writer { model: served.name.clone(), finish: None };
    if fields.stream.unwrap_or(false) {
        generation.begin().await?;
        return Ok(stream::events(generation, writer));
    }
    let mut text = String::new();
    while let Some(output) = generation.next().await {
        text.push_str(&writer.add(output?));
    }
    Ok(axum::Json(writer.last(&text)).into_response())
}

/// Writes an answer, whole or in chunks.
struct Writer {
    model: String,
    finish: Option<Finish>,
}

impl Writer {
    /// Takes in an output; gives its text.
    fn add(&mut self, output: Output) -> String {
        let deltas = match output.piece {
            Piece::Prompt(_) => Vec::new(),
            Piece::Token { deltas, .. } => deltas,
            Piece::Finished(mut finish) => {
                let deltas = std::mem::take(&mut finish.deltas);
                self.finish = Some(finish);
                deltas
            }
        };
        let text = |delta| match delta {
            Delta::Text(text) => Some(text),
            _ => None,
        };
        deltas.into_iter().filter_map(text).collect()
    }

    fn last(&self, text: &str) -> Json {
        let mut object = json!({"index": 0, "content": text, "stop": true, "model": self.model});
        if let Some(finish) = &self.finish {
            let (kind, word) = match &finish.reason {
                FinishReason::Length => ("limit", ""),
                FinishReason::StopString(word) => ("word", word.as_str()),
                FinishReason::Stop | FinishReason::ToolCalls => ("eos", ""),
            };
            object["stop_type"] = kind.into();
            object["stopping_word"] = word.into();
            object["tokens_predicted"] = finish.usage.completion.into();
            object["tokens_evaluated"] = finish.usage.prompt.into();
            object["tokens_cached"] = finish.usage.reused.into();
            object["timings"] = timings(finish.usage, finish.timings);
        }
        object
    }
}

impl ChunkWriter for Writer {
    fn begin(&mut self) -> Vec<Chunk> {
        Vec::new()
    }

    fn output(&mut self, output: Output) -> Vec<Chunk> {
        let text = self.add(output);
        let chunk = json!({"index": 0, "content": text, "stop": false});
        if text.is_empty() { Vec::new() } else { vec![chunk.into()] }
    }

    fn end(&mut self) -> Vec<Chunk> {
        vec![self.last("").into()]
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Chunk> {
        vec![ErrorStyle::OpenAi.json(error).into()]
    }
}
