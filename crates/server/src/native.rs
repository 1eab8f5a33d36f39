//! Routes of minfer itself: health, properties, metrics, tokens and templates.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use minfer::text::{DecodeOptions, EncodeOptions};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::generate;
use crate::generate::chat::run_blocking;
use crate::json::JsonBody;
use crate::openai::chat_request;
use crate::state::{App, Health};

/// `GET /health`: 503 while the model is loading, when the engine has stopped, and before the end.
pub(crate) async fn health(State(app): State<Arc<App>>) -> Response {
    let (status, text) = match app.health() {
        Health::Ok => (StatusCode::OK, "ok"),
        Health::Loading => (StatusCode::SERVICE_UNAVAILABLE, "loading model"),
        Health::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        Health::Stalled => (StatusCode::SERVICE_UNAVAILABLE, "stalled"),
    };
    (status, Json(json!({"status": text}))).into_response()
}

/// `GET /metrics`: Prometheus' text format.
pub(crate) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let stats: Vec<_> = app.registry.loaded().iter().map(|served| served.model.stats()).collect();
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, content_type)], app.metrics.text(&stats)).into_response()
}

/// `GET /props`: what is served, with which settings.
pub(crate) async fn props(State(app): State<Arc<App>>) -> Result<Json<Value>, ApiError> {
    let served = app.served(None).await?;
    let (model, config) = (&served.model, served.model.engine().config());
    Ok(Json(json!({
        "model": served.name,
        "model_path": model.path().display().to_string(),
        "n_ctx": model.context(),
        "total_slots": config.n_slots,
        "queue": config.queue,
        "chat_template": model.chat_template().map(minfer::text::ChatTemplate::source),
        "bos_token": model.tokenizer().bos(),
        "eos_token": model.tokenizer().eos(),
        "build_info": crate::FINGERPRINT,
    })))
}

#[derive(Deserialize)]
struct Tokenize {
    content: String,
    add_special: Option<bool>,
    parse_special: Option<bool>,
    with_pieces: Option<bool>,
}

/// `POST /tokenize`: text to token ids.
pub(crate) async fn tokenize(State(app): State<Arc<App>>, body: JsonBody) -> Result<Json<Value>, ApiError> {
    let model = app.served(body.model()).await?.model;
    let fields: Tokenize = body.read()?;
    let answer = run_blocking(move || {
        let options = EncodeOptions {
            add_special: fields.add_special.unwrap_or(false),
            parse_special: fields.parse_special.unwrap_or(true),
        };
        let ids = model.tokenizer().encode(&fields.content, options);
        let ids = ids.map_err(|error| ApiError::invalid("content", error.to_string()))?;
        if !fields.with_pieces.unwrap_or(false) {
            return Ok(json!({ "tokens": ids }));
        }
        let piece = |&id: &u32| {
            let bytes = model.tokenizer().token_bytes(id);
            let piece = std::str::from_utf8(bytes).map_or_else(|_| json!(bytes), |text| json!(text));
            json!({"id": id, "piece": piece})
        };
        Ok(json!({"tokens": ids.iter().map(piece).collect::<Vec<_>>()}))
    });
    answer.await?.map(Json)
}

#[derive(Deserialize)]
struct Detokenize {
    tokens: Vec<u32>,
}

/// `POST /detokenize`: token ids to text.
pub(crate) async fn detokenize(State(app): State<Arc<App>>, body: JsonBody) -> Result<Json<Value>, ApiError> {
    let model = app.served(body.model()).await?.model;
    let Detokenize { tokens } = body.read()?;
    let vocabulary = model.tokenizer().vocab_len();
    if let Some(at) = tokens.iter().position(|&id| id as usize >= vocabulary) {
        let message = format!("token {} is outside the vocabulary of {vocabulary} tokens", tokens[at]);
        return Err(ApiError::invalid(format!("tokens[{at}]"), message));
    }
    let text = model.tokenizer().decode(&tokens, DecodeOptions { show_special: true });
    Ok(Json(json!({ "content": text })))
}

/// `POST /apply-template`: the prompt that a chat request would have.
pub(crate) async fn apply_template(
    State(app): State<Arc<App>>,
    body: JsonBody,
) -> Result<Json<Value>, ApiError> {
    let model = app.served(body.model()).await?.model;
    let request = chat_request::read(&body, model.engine().config().n_slots)?;
    let prompt = generate::chat::rendered(&model, request).await?;
    Ok(Json(json!({ "prompt": prompt })))
}
