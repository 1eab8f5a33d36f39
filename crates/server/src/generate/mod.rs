//! Requests of any API, made neutral, run on the engine.

pub(crate) mod blocks;
mod call;
pub mod chat;
pub(crate) mod grammar;
pub(crate) mod infill;
pub mod options;
pub mod output;
pub(crate) mod run;
pub(crate) mod split;
pub(crate) mod syntax;
mod tool_text;
