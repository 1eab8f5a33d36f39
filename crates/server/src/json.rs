//! Bodies of requests as JSON, and values read from them with the path of what is wrong.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Deserialize;
use serde_json::Value as Json;

use crate::error::{ApiError, ErrorKind};
use crate::state::App;

/// A body that is a JSON object. A field that is null counts as absent.
pub(crate) struct JsonBody(Json);

impl JsonBody {
    /// An object that is part of a body.
    pub(crate) fn of(fields: serde_json::Map<String, Json>) -> JsonBody {
        JsonBody(fields.into())
    }

    /// The model that is asked for.
    pub(crate) fn model(&self) -> Option<&str> {
        self.0["model"].as_str()
    }

    /// Reads the fields of `T`; others are ignored.
    ///
    /// # Errors
    /// A field of another type, by its path.
    pub(crate) fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, ApiError> {
        read(&self.0)
    }
}

/// A number in the fewest digits that give back the same f32.
pub(crate) fn number(value: f32) -> Json {
    value.to_string().parse::<f64>().map_or(Json::Null, Json::from)
}

/// Reads a value; errors name the path inside of it.
pub(crate) fn read<'a, T: Deserialize<'a>>(value: &'a Json) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let message = error.into_inner().to_string();
        match path.as_str() {
            "." | "?" => ApiError::new(ErrorKind::InvalidRequest, message),
            _ => ApiError::invalid(path.clone(), format!("`{path}`: {message}")),
        }
    })
}

impl FromRequest<Arc<App>> for JsonBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<JsonBody, ApiError> {
        if let Some(content_type) = request.headers().get(CONTENT_TYPE) {
            check_content_type(content_type.as_bytes())?;
        }
        let bytes = bytes(request.into_body(), app.config.most_body_bytes).await?;
        let value: Json = serde_json::from_slice(&bytes).map_err(|error| {
            ApiError::new(ErrorKind::InvalidRequest, format!("the body is not valid JSON: {error}"))
        })?;
        if value.is_object() {
            return Ok(JsonBody(value));
        }
        Err(ApiError::new(ErrorKind::InvalidRequest, "the body is not a JSON object"))
    }
}

fn check_content_type(value: &[u8]) -> Result<(), ApiError> {
    let value = String::from_utf8_lossy(value).to_ascii_lowercase();
    let media = value.split(';').next().unwrap_or_default().trim();
    if media == "application/json" || (media.starts_with("application/") && media.ends_with("+json")) {
        return Ok(());
    }
    let message = format!("the body must be application/json, not {media:?}");
    Err(ApiError::new(ErrorKind::UnsupportedMediaType, message))
}

async fn bytes(body: Body, most: usize) -> Result<bytes::Bytes, ApiError> {
    match Limited::new(body, most).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err(ApiError::new(ErrorKind::TooLarge, format!("the body is larger than {most} bytes")))
        }
        Err(error) => {
            let message = format!("the body could not be read to its end: {error}");
            Err(ApiError::new(ErrorKind::InvalidRequest, message))
        }
    }
}
