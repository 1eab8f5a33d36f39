//! OpenAI's API.

pub(crate) mod chat;
pub(crate) mod chat_request;
pub(crate) mod completions;
mod logprobs;
pub(crate) mod models;
pub(crate) mod options;
pub(crate) mod responses;
mod responses_request;
mod stream_options;
pub(crate) mod usage;

/// The end of a stream of chunks.
fn done() -> crate::stream::Chunk {
    crate::stream::Chunk { event: None, data: "[DONE]".to_owned() }
}
