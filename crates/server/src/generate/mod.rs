//! Requests of any API, made neutral, run on the engine.

pub mod chat;
pub mod options;
pub mod output;
pub(crate) mod run;
pub(crate) mod split;
