//! Anthropic's API.

pub(crate) mod messages;
mod request;
