//! Every route, once: the router and the OpenAPI document are made from this list.

use std::sync::Arc;

use axum::Router;
use axum::routing::{MethodRouter, get, post};
use serde_json::{Map, Value as Json, json};

use crate::state::App;
use crate::{anthropic, infill, native, ollama, openai, slots};

/// A route with what the document says of it.
struct Route {
    /// Below the root and, unless the API is Ollama's, below `/v1` too.
    path: &'static str,
    handler: MethodRouter<Arc<App>>,
    summary: &'static str,
    /// Fields of the body, as `name: type`, required ones with `!` after the type; none takes no
    /// body.
    fields: &'static [&'static str],
}

const SAMPLING: &[&str] = &[
    "max_tokens: integer",
    "min_tokens: integer",
    "temperature: number",
    "top_k: integer",
    "top_p: number",
    "min_p: number",
    "repeat_penalty: number",
    "presence_penalty: number",
    "frequency_penalty: number",
    "logit_bias: object",
    "samplers: array",
    "seed: integer",
    "stop: string|array",
    "n: integer",
    "ignore_eos: boolean",
    "cache_prompt: boolean",
    "stream: boolean",
    "stream_options: object",
    "response_format: object",
    "grammar: string",
];

fn routes() -> Vec<Route> {
    let route = |path, handler, summary, fields| Route { path, handler, summary, fields };
    vec![
        route("/health", get(native::health), "Whether requests are carried out", &[]),
        route("/metrics", get(native::metrics), "Metrics for Prometheus", &[]),
        route("/props", get(native::props), "What is served, with which settings", &[]),
        route("/openapi.json", get(document), "This document", &[]),
        route("/models", get(openai::models::list), "The served models", &[]),
        route("/models/{*name}", get(openai::models::one), "One model", &[]),
        route(
            "/chat/completions",
            post(openai::chat::completions),
            "Answers messages",
            &[
                "messages: array!",
                "model: string",
                "tools: array",
                "tool_choice: string|object",
                "parallel_tool_calls: boolean",
                "logprobs: boolean",
                "top_logprobs: integer",
                "reasoning_effort: string",
                "reasoning_format: string",
                "chat_template_kwargs: object",
                "continue_final_message: boolean",
                "add_generation_prompt: boolean",
                "+sampling",
            ],
        ),
        route(
            "/completions",
            post(openai::completions::completions),
            "Continues texts",
            &["prompt: string|array!", "suffix: string", "echo: boolean", "logprobs: integer", "+sampling"],
        ),
        route(
            "/responses",
            post(openai::responses::responses),
            "Answers an input; nothing is stored",
            &[
                "input: string|array!",
                "instructions: string",
                "max_output_tokens: integer",
                "tools: array",
                "tool_choice: string|object",
                "parallel_tool_calls: boolean",
                "text: object",
                "reasoning: object",
                "temperature: number",
                "top_p: number",
                "stream: boolean",
            ],
        ),
        route(
            "/messages",
            post(anthropic::messages::messages),
            "Answers messages, in Anthropic's shape",
            MESSAGES,
        ),
        route(
            "/messages/count_tokens",
            post(anthropic::messages::count_tokens),
            "Counts the tokens of a prompt",
            MESSAGES,
        ),
        route(
            "/infill",
            post(infill::infill),
            "Fills a gap",
            &[
                "input_prefix: string",
                "input_suffix: string",
                "input_extra: array",
                "prompt: string",
                "+sampling",
            ],
        ),
        route(
            "/tokenize",
            post(native::tokenize),
            "Text to token ids",
            &["content: string!", "add_special: boolean", "parse_special: boolean", "with_pieces: boolean"],
        ),
        route("/detokenize", post(native::detokenize), "Token ids to text", &["tokens: array!"]),
        route(
            "/apply-template",
            post(native::apply_template),
            "The prompt of a chat request",
            &["messages: array!", "tools: array", "chat_template_kwargs: object"],
        ),
        route("/slots", get(slots::list), "What runs in each slot", &[]),
        route(
            "/slots/{id}",
            post(slots::act),
            "Saves, restores or erases the conversation of a slot; the query has the `action`",
            &["filename: string"],
        ),
        route("/api/chat", post(ollama::chat::chat), "Answers messages, in Ollama's shape", OLLAMA),
        route(
            "/api/generate",
            post(ollama::generate::generate),
            "Answers a prompt, in Ollama's shape",
            OLLAMA,
        ),
        route("/api/tags", get(ollama::models::tags), "The served models", &[]),
        route("/api/ps", get(ollama::models::running), "The loaded models", &[]),
        route("/api/show", post(ollama::models::show), "What is known of a model", &["model: string"]),
        route("/api/version", get(ollama::models::version), "The program's version", &[]),
    ]
}

const MESSAGES: &[&str] = &[
    "messages: array!",
    "max_tokens: integer!",
    "model: string",
    "system: string|array",
    "tools: array",
    "tool_choice: object",
    "stop_sequences: array",
    "thinking: object",
    "temperature: number",
    "top_k: integer",
    "top_p: number",
    "stream: boolean",
];

const OLLAMA: &[&str] = &[
    "model: string",
    "messages: array",
    "prompt: string",
    "system: string",
    "suffix: string",
    "raw: boolean",
    "tools: array",
    "format: string|object",
    "think: boolean|string",
    "options: object",
    "stream: boolean",
];

impl Route {
    /// Where it is served.
    fn places(&self) -> Vec<String> {
        match self.path.starts_with("/api/") {
            true => vec![self.path.to_owned()],
            false => vec![self.path.to_owned(), format!("/v1{}", self.path)],
        }
    }

    fn operation(&self) -> (&'static str, Json) {
        let answer = json!({"description": "The answer, or a stream of its parts"});
        let refused = json!({"description": "An error, in the shape of the API"});
        let mut operation = json!({
            "summary": self.summary,
            "responses": {"200": answer, "default": refused},
        });
        if let Some((_, name)) = self.path.split_once('{') {
            let name = name.trim_start_matches('*').trim_end_matches('}');
            operation["parameters"] =
                json!([{"name": name, "in": "path", "required": true, "schema": {"type": "string"}}]);
        }
        if self.fields.is_empty() {
            return ("get", operation);
        }
        let schema = schema(self.fields);
        operation["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": schema}}});
        ("post", operation)
    }
}

/// The schema of a body. Every field may be null, which counts as absent, unless it is required.
fn schema(fields: &[&str]) -> Json {
    let (mut properties, mut required) = (Map::new(), Vec::new());
    let sampling = if fields.contains(&"+sampling") { SAMPLING } else { &[] };
    for field in fields.iter().chain(sampling).filter(|field| **field != "+sampling") {
        let Some((name, kind)) = field.split_once(": ") else { continue };
        let kinds = kind.trim_end_matches('!').split('|').map(Json::from);
        let types: Vec<Json> = match kind.ends_with('!') {
            true => {
                required.push(name);
                kinds.collect()
            }
            false => kinds.chain(["null".into()]).collect(),
        };
        let mut property = json!({ "type": types });
        match name {
            "messages" => property["items"] = message(),
            "tokens" => property["items"] = json!({"type": "integer", "minimum": 0}),
            _ => {}
        }
        properties.insert(name.to_owned(), property);
    }
    json!({"type": "object", "properties": properties, "required": required})
}

fn message() -> Json {
    json!({
        "type": "object",
        "required": ["role", "content"],
        "properties": {
            "role": {"enum": ["system", "user", "assistant"]},
            "content": {"type": "string"},
        },
    })
}

/// All routes.
pub(crate) fn router() -> Router<Arc<App>> {
    routes().into_iter().fold(Router::new(), |router, route| {
        let places = route.places();
        places.iter().fold(router, |router, place| router.route(place, route.handler.clone()))
    })
}

/// `GET /openapi.json`.
async fn document() -> axum::Json<Json> {
    let mut paths = Map::new();
    for route in routes() {
        let (method, operation) = route.operation();
        for place in route.places() {
            paths.insert(place.replace("{*", "{"), json!({ method: operation }));
        }
    }
    axum::Json(json!({
        "openapi": "3.1.0",
        "info": {"title": "minfer", "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"key": []}],
    }))
}
