//! `GET /api/tags`, `GET /api/ps`, `GET /api/version`, `POST /api/show`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::id;
use crate::json::JsonBody;
use crate::state::{App, Served};

/// The models that are served.
pub(crate) async fn tags(State(app): State<Arc<App>>) -> Json<Value> {
    let models: Vec<Value> = app.registry.list().into_iter().map(entry).collect();
    Json(json!({ "models": models }))
}

/// The models that are loaded.
pub(crate) async fn running(State(app): State<Arc<App>>) -> Json<Value> {
    let loaded = app.registry.loaded().into_iter().map(|served| {
        let context = served.model.context();
        let mut entry = entry((&served.name.clone(), Some(served)));
        entry["context_length"] = context.into();
        entry["size_vram"] = 0.into();
        entry
    });
    Json(json!({ "models": loaded.collect::<Vec<_>>() }))
}

/// The program's version.
pub(crate) async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

/// What is known of the model.
pub(crate) async fn show(State(app): State<Arc<App>>, body: JsonBody) -> Result<Json<Value>, ApiError> {
    let served = app.served(body.model()).await?;
    let template = served.model.chat_template().map(minfer::text::ChatTemplate::source).unwrap_or_default();
    let mut capabilities = vec!["completion"];
    if template.contains("tools") {
        capabilities.push("tools");
    }
    let architecture = served.model.family();
    Ok(Json(json!({
        "modelfile": "",
        "parameters": "",
        "template": template,
        "details": details(Some(&served)),
        "model_info": {
            "general.architecture": architecture,
            format!("{architecture}.context_length"): served.model.context(),
        },
        "capabilities": capabilities,
        "modified_at": id::time_as_text(served.created),
    })))
}

/// A model, of which little is known before it is loaded.
fn entry((name, served): (&str, Option<Served>)) -> Value {
    json!({
        "name": name,
        "model": name,
        "modified_at": id::time_as_text(served.as_ref().map_or(0, |served| served.created)),
        "size": served.as_ref().map_or(0, |served| served.model.weight_bytes()),
        "digest": "",
        "details": details(served.as_ref()),
    })
}

/// As `494M` or `1.5B`.
fn parameters(count: u64) -> String {
    match count as f64 {
        count if count >= 1e9 => format!("{:.1}B", count / 1e9),
        count => format!("{:.0}M", count / 1e6),
    }
}

fn details(served: Option<&Served>) -> Value {
    let family = served.map_or("", |served| served.model.family());
    json!({
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family],
        "parameter_size": served.map(|served| parameters(served.model.parameters())).unwrap_or_default(),
        "quantization_level": "",
    })
}
