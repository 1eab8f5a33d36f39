//! Requests of any API, made neutral, run on the engine.

pub mod chat;
pub mod completion;
pub mod options;
pub mod output;
