//! The HTTP server: OpenAI, Anthropic and Ollama APIs on one engine.
//!
//! A route reads its own JSON and makes one neutral request of it ([`generate::chat::ChatRequest`]
//! or [`generate::completion::CompletionRequest`]). [`generate`] runs it on the engine and gives
//! back a stream of [`generate::output::Output`]s, which the route writes in its API's shape, whole
//! or as events. Errors are [`error::ApiError`]s; each API writes them in its own envelope.
#![forbid(unsafe_code)]

pub mod error;
pub mod generate;
