//! `GET /v1/models`.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use serde_json::{Value, json};

use crate::error::{ApiError, ErrorKind};
use crate::state::{App, Served};

/// The models that are served.
pub(crate) async fn list(State(app): State<Arc<App>>) -> Json<Value> {
    let models: Vec<Value> = app.loaded().map(entry).into_iter().collect();
    Json(json!({"object": "list", "data": models}))
}

/// One model by its name.
pub(crate) async fn one(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let served = app.loaded().filter(|served| served.name == name);
    let unknown = || ApiError::new(ErrorKind::NotFound, format!("there is no model {name:?}"));
    served.map(|served| Json(entry(served))).ok_or_else(unknown)
}

fn entry(served: &Served) -> Value {
    json!({
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "minfer",
        "max_model_len": served.model.context(),
    })
}
