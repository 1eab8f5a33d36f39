//! `GET /v1/models`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use crate::error::{ApiError, ErrorKind};
use crate::state::{App, Health, Served};

/// The models that are served.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Json<Value> {
    let models: Vec<Value> = match app.health() {
        Health::Loading => Vec::new(),
        _ => app.registry.list().into_iter().map(entry).collect(),
    };
    Json(json!({"object": "list", "data": models}))
}

/// One model by its name.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let found = app.registry.list().into_iter().find(|(known, _)| *known == name);
    let unknown = || ApiError::new(ErrorKind::NotFound, format!("there is no model {name:?}"));
    found.map(|model| Json(entry(model))).ok_or_else(unknown)
}

fn entry((name, served): (&str, Option<Served>)) -> Value {
    json!({
        "id": name,
        "object": "model",
        "created": served.as_ref().map_or(0, |served| served.created),
        "owned_by": "minfer",
        "max_model_len": served.as_ref().map(|served| served.model.context()),
    })
}
