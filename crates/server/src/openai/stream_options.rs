//! Whether and how an answer is streamed.

use serde::Deserialize;

use crate::error::ApiError;
use crate::json::JsonBody;

#[derive(Deserialize)]
struct Fields {
    stream: Option<bool>,
    stream_options: Option<Options>,
}

#[derive(Deserialize)]
struct Options {
    include_usage: Option<bool>,
}

/// How an answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Streaming {
    pub(super) stream: bool,
    /// The stream ends with a chunk of token counts.
    pub(super) include_usage: bool,
}

impl Streaming {
    pub(super) fn read(body: &JsonBody) -> Result<Streaming, ApiError> {
        let Fields { stream, stream_options } = body.read()?;
        let include_usage = stream_options.and_then(|options| options.include_usage).unwrap_or(false);
        Ok(Streaming { stream: stream.unwrap_or(false), include_usage })
    }
}
