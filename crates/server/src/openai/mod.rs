//! OpenAI's API.

pub(crate) mod chat;
pub(crate) mod chat_request;
pub(crate) mod completions;
mod logprobs;
pub(crate) mod models;
mod options;
mod stream_options;
mod usage;
