//! `/slots`: what runs in each slot, and the conversation that last ran in one saved to a file,
//! restored and erased.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::{Path as PathOf, Query, State};
use minfer::engine::SlotInfo;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{ApiError, ErrorKind};
use crate::generate::chat::run_blocking;
use crate::json::JsonBody;
use crate::state::App;

/// Bytes of a file's name at most.
const MOST_NAME: usize = 200;

#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    /// Which of several models.
    model: Option<String>,
    action: Option<String>,
}

#[derive(Deserialize)]
struct File {
    filename: Option<String>,
}

/// `GET /slots`
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Query(asked): Query<Asked>,
) -> Result<Json<Value>, ApiError> {
    let model = app.served(asked.model.as_deref()).await?.model;
    let slots = run_blocking(move || {
        let slots = model.engine().slots().map_err(ApiError::from)?;
        let slot = |slot: SlotInfo| {
            json!({
                "id": slot.slot,
                "n_ctx": model.context(),
                "is_processing": slot.is_running,
                "n_tokens": slot.tokens,
                "n_decoded": slot.generated,
            })
        };
        Ok::<_, ApiError>(slots.into_iter().map(slot).collect())
    });
    Ok(Json(slots.await??))
}

/// `POST /slots/{id}?action=save|restore|erase`
pub(crate) async fn act(
    State(app): State<Arc<App>>,
    PathOf(id): PathOf<String>,
    Query(asked): Query<Asked>,
    body: JsonBody,
) -> Result<Json<Value>, ApiError> {
    let served = app.served(asked.model.as_deref().or(body.model())).await?;
    let unknown = || ApiError::new(ErrorKind::NotFound, format!("there is no slot {id:?}"));
    let slot: usize = id.parse().map_err(|_| unknown())?;
    if slot >= served.model.engine().config().n_slots {
        return Err(unknown());
    }
    let File { filename } = body.read()?;
    let action = asked.action.as_deref().unwrap_or_default().to_owned();
    let path = match action.as_str() {
        "save" | "restore" => Some(path(app.config.slot_save_path.as_deref(), filename.as_deref())?),
        "erase" => None,
        _ => return Err(ApiError::invalid("action", "`action` is one of save, restore, erase")),
    };
    let answer = run_blocking(move || {
        let (engine, started) = (served.model.engine(), Instant::now());
        let milliseconds = || started.elapsed().as_secs_f64() * 1e3;
        let answer = match &path {
            Some(path) if action == "save" => {
                let saved = engine.save_slots(Some(slot), path)?;
                json!({
                    "n_saved": saved.tokens,
                    "n_written": saved.bytes,
                    "timings": {"save_ms": milliseconds()},
                })
            }
            Some(path) => {
                let loaded = engine.load_slots(Some(slot), path)?;
                json!({
                    "n_restored": loaded.tokens,
                    "n_read": loaded.bytes,
                    "timings": {"restore_ms": milliseconds()},
                })
            }
            None => json!({"n_erased": engine.erase_slot(slot)?}),
        };
        served.slots_changed();
        Ok::<_, ApiError>(answer)
    });
    let mut answer = answer.await??;
    answer["id_slot"] = slot.into();
    if let Some(filename) = filename {
        answer["filename"] = filename.into();
    }
    Ok(Json(answer))
}

/// The file of that name in the folder for slots: a name, and nothing that leads elsewhere.
fn path(folder: Option<&Path>, filename: Option<&str>) -> Result<PathBuf, ApiError> {
    let folder = folder.ok_or_else(|| {
        ApiError::not_supported("action", "slots are saved where the server has --slot-save-path FOLDER")
    })?;
    let name = filename.filter(|name| is_plain(name)).ok_or_else(|| {
        ApiError::invalid("filename", "`filename` is the name of a file, without folders or a leading dot")
    })?;
    Ok(folder.join(name))
}

fn is_plain(name: &str) -> bool {
    let odd = |character: char| character.is_control() || "/\\:*?\"<>|".contains(character);
    !name.is_empty() && name.len() <= MOST_NAME && !name.starts_with('.') && !name.contains(odd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_lead_out_of_the_folder() {
        let folder = Path::new("/slots");
        assert_eq!(path(Some(folder), Some("a b-1.bin")).unwrap(), Path::new("/slots/a b-1.bin"));
        let long = "a".repeat(201);
        for name in
            ["", ".", "..", "../a", "a/b", "a\\b", "/etc/passwd", "c:a", "a\0", "a\n", ".hidden", &long]
        {
            let error = path(Some(folder), Some(name)).unwrap_err();
            assert_eq!((error.kind, error.param.as_deref()), (ErrorKind::InvalidRequest, Some("filename")));
        }
        assert_eq!(path(Some(folder), None).unwrap_err().kind, ErrorKind::InvalidRequest);
        assert_eq!(path(None, Some("a")).unwrap_err().kind, ErrorKind::NotSupported);
    }
}
