//! Ollama's API.

mod answers;
pub(crate) mod chat;
pub(crate) mod generate;
pub(crate) mod models;
mod options;
