//! `POST /api/generate`.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use minfer::text::EncodeOptions;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::answers::{Shape, Writer};
use super::options::{self, Common};
use crate::auth::Salt;
use crate::error::ApiError;
use crate::generate::chat::{ChatRequest, ToolChoice, run_blocking};
use crate::generate::infill::{self, Gap};
use crate::generate::run::{Generation, Terms, TextOf};
use crate::json::JsonBody;
use crate::openai::chat_request;
use crate::state::{App, Served};
use crate::{generate, stream};

#[derive(Deserialize)]
struct Fields {
    prompt: Option<String>,
    system: Option<String>,
    raw: Option<bool>,
    suffix: Option<String>,
    images: Option<Vec<Json>>,
}

/// Answers a prompt, or continues it as it stands.
pub(crate) async fn generate(
    State(app): State<Arc<App>>,
    Extension(salt): Extension<Salt>,
    body: JsonBody,
) -> Result<Response, ApiError> {
    let served = app.served(body.model()).await?;
    let common = options::read(&body, served.model.engine().config().n_slots)?;
    let fields: Fields = body.read()?;
    if fields.images.is_some_and(|images| !images.is_empty()) {
        return Err(ApiError::not_supported("images", "`images` is not supported"));
    }
    let suffix = fields.suffix.filter(|suffix| !suffix.is_empty());
    let prompt = fields.prompt.unwrap_or_default();
    if prompt.is_empty() {
        let loaded = json!({
            "model": served.name, "created_at": crate::id::timestamp(), "done": true, "done_reason": "load",
            "response": "",
        });
        return Ok(axum::Json(loaded).into_response());
    }
    let streams = common.stream;
    let is_raw = fields.raw.unwrap_or(false) || served.model.chat_template().is_none();
    let mut generation = match is_raw || suffix.is_some() {
        true => raw(&app, &served, prompt, suffix, common, salt).await?,
        false => answer(&app, &served, prompt, fields.system, common, salt).await?,
    };
    let writer = Writer::new(&served.name, Shape::Response);
    if streams {
        generation.begin().await?;
        return Ok(stream::lines(generation, writer));
    }
    writer.whole(generation).await.map(|json| axum::Json(json).into_response())
}

async fn raw(
    app: &Arc<App>,
    served: &Served,
    prompt: String,
    suffix: Option<String>,
    common: Common,
    salt: Salt,
) -> Result<Generation, ApiError> {
    let (handle, format) = (served.clone(), common.format);
    let prepared = run_blocking(move || {
        let ids = match suffix {
            Some(suffix) => infill::prompt(&handle.model, &Gap { prefix: prompt, suffix, ..Gap::default() })?,
            None => {
                let options = EncodeOptions { add_special: true, parse_special: true };
                let ids = handle.model.tokenizer().encode(&prompt, options);
                ids.map_err(|error| ApiError::invalid("prompt", error.to_string()))?
            }
        };
        let grammar = generate::grammar::of_format(&format).map(|grammar| handle.compile(grammar, "format"));
        Ok::<_, ApiError>((ids, grammar.transpose()?))
    });
    let (ids, grammar) = prepared.await??;
    let terms =
        Terms { options: &common.options, salt: salt.0, prompt_logprobs: None, grammar: grammar.as_ref() };
    Generation::start(app, served, vec![ids], &terms, || TextOf::Plain)
}

async fn answer(
    app: &Arc<App>,
    served: &Served,
    prompt: String,
    system: Option<String>,
    common: Common,
    salt: Salt,
) -> Result<Generation, ApiError> {
    let system = system.map(|text| json!({"role": "system", "content": text}));
    let messages: Vec<Json> =
        system.into_iter().chain([json!({"role": "user", "content": prompt})]).collect();
    let request = ChatRequest {
        model: common.model,
        messages: chat_request::messages(&messages)?,
        tools: Vec::new(),
        tool_choice: ToolChoice::Auto,
        parallel_tool_calls: true,
        format: common.format,
        split_reasoning: true,
        template_variables: common.template_variables,
        continue_final_message: false,
        add_generation_prompt: true,
        options: common.options,
    };
    generate::chat::start(app, served, request, salt).await
}
