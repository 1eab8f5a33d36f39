//! `POST /v1/completions`: texts to continue, without a chat template.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use minfer::Model;
use minfer::text::{DecodeOptions, EncodeOptions};
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::logprobs::Legacy;
use super::options;
use super::stream_options::Streaming;
use super::usage::{Totals, reason};
use crate::auth::Salt;
use crate::error::{ApiError, ErrorStyle};
use crate::generate::chat::run_blocking;
use crate::generate::grammar;
use crate::generate::infill::{self, Gap};
use crate::generate::options::Options;
use crate::generate::output::{Delta, Finish, Output, Piece, TokenScores};
use crate::generate::run::{Generation, Terms, TextOf};
use crate::id;
use crate::json::{self, JsonBody};
use crate::state::App;
use crate::stream::{self, Chunk, ChunkWriter};

#[derive(Deserialize)]
struct Fields {
    prompt: Option<Json>,
    suffix: Option<String>,
    echo: Option<bool>,
    logprobs: Option<u32>,
}

/// Prompts of one request at most.
const MOST_PROMPTS: usize = 256;
/// Alternatives of each token at most.
const MOST_LOGPROBS: u32 = 20;

/// Continues texts.
pub(crate) async fn completions(
    State(app): State<Arc<App>>,
    Extension(salt): Extension<Salt>,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let served = app.served(body.model()).await?;
    let streaming = Streaming::read(&body)?;
    let fields: Fields = body.read()?;
    let slots = served.model.engine().config().n_slots;
    let mut options = options::read(&body, slots)?;
    options.logprobs = logprobs(fields.logprobs)?;
    let format = options::format(&body)?;
    let suffix = fields.suffix.filter(|suffix| !suffix.is_empty());
    let prompts = prompts(fields.prompt.as_ref())?;
    let handle = served.clone();
    let prepared = run_blocking(move || {
        let encode = |prompt: Prompt| prompt.encode(&handle.model, suffix.as_deref());
        let prompts = prompts.into_iter().map(encode).collect::<Result<Vec<_>, _>>()?;
        let grammar = grammar::of_format(&format).map(|grammar| handle.compile(grammar, "response_format"));
        Ok::<_, ApiError>((prompts, grammar.transpose()?))
    });
    let (prompts, grammar) = prepared.await??;
    let echo = fields.echo.unwrap_or(false);
    let mut writer = Writer::new(&served.name, &served.model, &prompts, &options, echo);
    let prompt_logprobs = options.logprobs.filter(|_| echo);
    let grammar = grammar.as_ref();
    let terms = Terms { options: &options, salt: salt.0, prompt_logprobs, grammar };
    let mut generation = Generation::start(&app, &served, prompts, &terms, || TextOf::Plain)?;
    if streaming.stream {
        generation.begin().await?;
        writer.include_usage = streaming.include_usage;
        return Ok(stream::events(generation, writer));
    }
    writer.whole(generation).await.map(|json| axum::Json(json).into_response())
}

fn logprobs(wanted: Option<u32>) -> Result<Option<u32>, ApiError> {
    match wanted {
        Some(wanted) if wanted > MOST_LOGPROBS => Err(ApiError::invalid(
            "logprobs",
            format!("`logprobs` is {wanted}, but must be at most {MOST_LOGPROBS}"),
        )),
        wanted => Ok(wanted),
    }
}

enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
}

impl Prompt {
    /// Token ids; with a suffix, those after which the model fills the gap before it.
    fn encode(self, model: &Model, suffix: Option<&str>) -> Result<Vec<u32>, ApiError> {
        match (self, suffix) {
            (Prompt::Text(prefix), Some(suffix)) => {
                infill::prompt(model, &Gap { prefix, suffix: suffix.to_owned(), ..Gap::default() })
            }
            (prompt, _) => prompt.encode_plain(model),
        }
    }

    fn encode_plain(self, model: &Model) -> Result<Vec<u32>, ApiError> {
        match self {
            Prompt::Tokens(ids) => Ok(ids),
            Prompt::Text(text) => {
                let options = EncodeOptions { add_special: true, parse_special: true };
                let ids = model.tokenizer().encode(&text, options);
                ids.map_err(|error| ApiError::invalid("prompt", error.to_string()))
            }
        }
    }
}

/// A text, several, token ids, or several lists of them.
fn prompts(value: Option<&Json>) -> Result<Vec<Prompt>, ApiError> {
    let missing = || ApiError::invalid("prompt", "`prompt` is missing or empty");
    let ids = |value: &Json| json::read::<Vec<u32>>(value).map(Prompt::Tokens);
    let wrong = |_| ApiError::invalid("prompt", "`prompt` must be a text, token ids, or a list of such");
    match value.ok_or_else(missing)? {
        Json::String(text) => Ok(vec![Prompt::Text(text.clone())]),
        Json::Array(items) if items.is_empty() => Err(missing()),
        value @ Json::Array(items) if items[0].is_number() => Ok(vec![ids(value).map_err(wrong)?]),
        Json::Array(items) if items.len() > MOST_PROMPTS => {
            Err(ApiError::invalid("prompt", format!("more than {MOST_PROMPTS} prompts")))
        }
        Json::Array(items) => items
            .iter()
            .map(|item| match item {
                Json::String(text) => Ok(Prompt::Text(text.clone())),
                other => ids(other).map_err(wrong),
            })
            .collect(),
        Json::Null => Err(missing()),
        other => Err(wrong(ids(other).err().unwrap_or_else(missing))),
    }
}

/// Writes answers, whole or in chunks.
struct Writer {
    id: String,
    created: u64,
    name: String,
    model: Model,
    n: u32,
    wants_logprobs: bool,
    /// The prompts' token ids, where they are reported before their answers.
    echoed: Option<Vec<Vec<u32>>>,
    answers: Vec<Answer>,
    totals: Totals,
    include_usage: bool,
}

#[derive(Default)]
struct Answer {
    text: String,
    reason: &'static str,
    logprobs: Legacy,
    /// The prompt's tokens are in `logprobs` already.
    has_prompt: bool,
}

impl Writer {
    fn new(name: &str, model: &Model, prompts: &[Vec<u32>], options: &Options, echo: bool) -> Writer {
        let answers = prompts.len() * options.n as usize;
        Writer {
            id: id::new("cmpl-"),
            created: id::now(),
            name: name.to_owned(),
            model: model.clone(),
            n: options.n,
            wants_logprobs: options.logprobs.is_some(),
            echoed: echo.then(|| prompts.to_vec()),
            answers: (0..answers).map(|_| Answer::default()).collect(),
            totals: Totals::default(),
            include_usage: false,
        }
    }

    fn object(&self, choices: Json) -> Json {
        json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.name,
            "system_fingerprint": crate::FINGERPRINT,
            "choices": choices,
        })
    }

    /// The prompt's text and its tokens' log-probabilities, before an answer that echoes it.
    fn echo(&mut self, choice: u32) -> String {
        let Some(prompts) = &self.echoed else { return String::new() };
        let prompt = &prompts[(choice / self.n) as usize];
        let bos = self.model.tokenizer().bos().filter(|bos| prompt.first() == Some(bos));
        let shown = &prompt[usize::from(bos.is_some())..];
        let text = self.model.tokenizer().decode(shown, DecodeOptions { show_special: true });
        let answer = &mut self.answers[choice as usize];
        if self.wants_logprobs && !answer.has_prompt {
            answer.has_prompt = true;
            if let Some(&first) = prompt.first() {
                answer.logprobs.push(&self.model, first, None, &[]);
            }
        }
        text
    }

    /// Adds an output to its answer: the new text, and the ending.
    fn add(&mut self, output: Output) -> (u32, String, Option<Finish>) {
        let Output { choice, piece } = output;
        match piece {
            Piece::Prompt(rows) => {
                self.echo(choice);
                let prompt: &[u32] = match &self.echoed {
                    Some(prompts) => &prompts[(choice / self.n) as usize],
                    None => &[],
                };
                let answer = &mut self.answers[choice as usize];
                for row in rows {
                    // A row predicts the token after it.
                    let (Some(&next), Some(logprob)) =
                        (prompt.get(row.position as usize + 1), row.next_logprob)
                    else {
                        continue;
                    };
                    let top: Vec<(u32, f32)> =
                        row.top.iter().map(|token| (token.id, token.logprob)).collect();
                    answer.logprobs.push(&self.model, next, Some(logprob), &top);
                }
                (choice, String::new(), None)
            }
            Piece::Token { deltas, logprobs } => {
                let text = self.text(choice, deltas);
                if let Some(scores) = logprobs {
                    self.score(choice, &scores);
                }
                (choice, text, None)
            }
            Piece::Finished(mut finish) => {
                let text = self.text(choice, std::mem::take(&mut finish.deltas));
                self.totals.add(choice, self.n, &finish);
                self.answers[choice as usize].reason = reason(&finish.reason);
                (choice, text, Some(finish))
            }
        }
    }

    fn text(&mut self, choice: u32, deltas: Vec<Delta>) -> String {
        let texts = deltas.into_iter().filter_map(|delta| match delta {
            Delta::Text(text) => Some(text),
            _ => None,
        });
        let text: String = texts.collect();
        self.answers[choice as usize].text.push_str(&text);
        text
    }

    fn score(&mut self, choice: u32, scores: &TokenScores) {
        self.answers[choice as usize].logprobs.push_scores(&self.model, scores);
    }

    fn logprobs(&mut self, choice: u32) -> Json {
        match self.wants_logprobs {
            true => self.answers[choice as usize].logprobs.take(),
            false => Json::Null,
        }
    }

    async fn whole(mut self, mut generation: Generation) -> Result<Json, ApiError> {
        let mut beginnings: Vec<String> = Vec::new();
        for choice in 0..self.answers.len() as u32 {
            beginnings.push(self.echo(choice));
        }
        while let Some(output) = generation.next().await {
            self.add(output?);
        }
        let mut choices = Vec::new();
        for (index, beginning) in beginnings.into_iter().enumerate() {
            let logprobs = self.logprobs(index as u32);
            let answer = &self.answers[index];
            let text = beginning + &answer.text;
            choices.push(json!({
                "index": index, "text": text, "finish_reason": answer.reason, "logprobs": logprobs,
            }));
        }
        let mut object = self.object(choices.into());
        object["usage"] = self.totals.to_json();
        object["timings"] = self.totals.timings();
        Ok(object)
    }

    fn chunk(&self, choice: u32, text: &str, reason: Option<&str>, logprobs: Json) -> Json {
        self.object(json!([
            {"index": choice, "text": text, "finish_reason": reason, "logprobs": logprobs}
        ]))
    }
}

impl ChunkWriter for Writer {
    fn begin(&mut self) -> Vec<Chunk> {
        if self.echoed.is_none() {
            return Vec::new();
        }
        let choices = 0..self.answers.len() as u32;
        choices
            .map(|choice| {
                let text = self.echo(choice);
                self.chunk(choice, &text, None, Json::Null).into()
            })
            .collect()
    }

    fn output(&mut self, output: Output) -> Vec<Chunk> {
        let (choice, text, finish) = self.add(output);
        let logprobs = self.logprobs(choice);
        let mut chunks = Vec::new();
        let scored = logprobs["tokens"].as_array().is_some_and(|tokens| !tokens.is_empty());
        if !text.is_empty() || scored {
            chunks.push(self.chunk(choice, &text, None, if scored { logprobs } else { Json::Null }).into());
        }
        if let Some(finish) = finish {
            chunks.push(self.chunk(choice, "", Some(reason(&finish.reason)), Json::Null).into());
        }
        chunks
    }

    fn end(&mut self) -> Vec<Chunk> {
        let usage = self.include_usage.then(|| {
            let mut chunk = self.object(json!([]));
            chunk["usage"] = self.totals.to_json();
            chunk.into()
        });
        usage.into_iter().chain([super::done()]).collect()
    }

    fn fail(&mut self, error: &ApiError) -> Vec<Chunk> {
        vec![ErrorStyle::OpenAi.json(error).into(), super::done()]
    }
}
