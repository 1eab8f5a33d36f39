//! Reads and checks the metadata keys of one architecture.

use std::fmt;

use crate::metadata::bad_value;
use crate::{Metadata, ModelError};

/// The metadata keys of one architecture.
#[derive(Clone, Copy)]
pub(crate) struct Keys<'m> {
    pub(crate) metadata: &'m Metadata<'m>,
    pub(crate) architecture: &'m str,
    /// Whether the family has rope factors for short and for long contexts.
    pub(super) long_rope: bool,
}

impl<'m> Keys<'m> {
    /// The keys that begin with `architecture`.
    pub(crate) fn of(metadata: &'m Metadata<'m>, architecture: &'m str) -> Keys<'m> {
        Keys { metadata, architecture, long_rope: false }
    }

    /// The same for a family with rope factors for short and for long contexts.
    pub(crate) fn with_long_rope(self) -> Keys<'m> {
        Keys { long_rope: true, ..self }
    }

    /// Refuses models with experts.
    pub(crate) fn refuse_experts(&self) -> Result<(), ModelError> {
        self.refuse_count("expert_count", "a mixture of experts")
    }

    /// Refuses a feature that a non-zero number under `key` switches on.
    pub(crate) fn refuse_count(&self, key: &str, what: &'static str) -> Result<(), ModelError> {
        match self.metadata.uniform_u32(&self.name(key))? {
            None | Some(0) => Ok(()),
            Some(count) => Err(self.unsupported(key, &count, what)),
        }
    }

    /// Refuses a feature that a number other than 0 under `key` switches on.
    pub(crate) fn refuse_number(&self, key: &str, what: &'static str) -> Result<(), ModelError> {
        match self.metadata.f64(&self.name(key))? {
            None | Some(0.0) => Ok(()),
            Some(number) => Err(self.unsupported(key, &number, what)),
        }
    }

    /// A truth value.
    pub(crate) fn flag(&self, key: &str, default: bool) -> Result<bool, ModelError> {
        Ok(self.metadata.bool(&self.name(key))?.unwrap_or(default))
    }

    /// Refuses models with bidirectional attention.
    pub(crate) fn refuse_bidirectional(&self) -> Result<(), ModelError> {
        let key = "attention.causal";
        match self.metadata.bool(&self.name(key))? {
            Some(false) => Err(self.unsupported(key, &false, "bidirectional attention")),
            _ => Ok(()),
        }
    }

    fn unsupported(&self, key: &str, value: &dyn fmt::Display, what: &'static str) -> ModelError {
        ModelError::Unsupported {
            architecture: self.architecture.to_owned(),
            what,
            key: self.name(key),
            value: value.to_string(),
        }
    }

    pub(super) fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    pub(super) fn bad(&self, key: &str, value: impl fmt::Display, wanted: &str) -> ModelError {
        bad_value(&self.name(key), &value, wanted)
    }

    pub(super) fn missing(&self, key: &str, wanted: &str) -> ModelError {
        ModelError::MissingKey { key: self.name(key), wanted: wanted.to_owned() }
    }

    pub(super) fn optional_count(&self, key: &str, most: u32) -> Result<Option<u32>, ModelError> {
        match self.metadata.uniform_u32(&self.name(key))? {
            Some(value) if value == 0 || value > most => {
                Err(self.bad(key, value, &format!("a number from 1 to {most}")))
            }
            other => Ok(other),
        }
    }

    pub(super) fn count_or(&self, key: &str, most: u32, default: u32) -> Result<u32, ModelError> {
        Ok(self.optional_count(key, most)?.unwrap_or(default))
    }

    pub(super) fn count(&self, key: &str, most: u32) -> Result<u32, ModelError> {
        let wanted = || self.missing(key, &format!("a number from 1 to {most}"));
        self.optional_count(key, most)?.ok_or_else(wanted)
    }

    /// A number above 0 and at most `most`.
    pub(super) fn number(&self, key: &str, default: Option<f64>, most: f64) -> Result<f64, ModelError> {
        let wanted = format!("a number above 0 and at most {most}");
        match self.metadata.f64(&self.name(key))? {
            Some(value) if value > 0.0 && value <= most => Ok(value),
            Some(value) => Err(self.bad(key, value, &wanted)),
            None => default.ok_or_else(|| self.missing(key, &wanted)),
        }
    }

    pub(super) fn head_dim(&self, key: &str, hidden_size: u32, heads: u32) -> Result<u32, ModelError> {
        if let Some(dim) = self.optional_count(key, 1 << 13)? {
            return Ok(dim);
        }
        if !hidden_size.is_multiple_of(heads) {
            let wanted = format!(
                "a divisor of {} = {hidden_size}, or {}",
                self.name("embedding_length"),
                self.name(key)
            );
            return Err(self.bad("attention.head_count", heads, &wanted));
        }
        Ok(hidden_size / heads)
    }

    /// The tokenizer's tokens, which the embedding has rows for; `vocab_size` where the file has no
    /// tokenizer.
    pub(super) fn vocab(&self) -> Result<u32, ModelError> {
        let tokens = self.metadata.array("tokenizer.ggml.tokens")?;
        match tokens.and_then(|tokens| u32::try_from(tokens.len()).ok()) {
            Some(count) if (1..=1 << 24).contains(&count) => Ok(count),
            Some(count) => Err(bad_value(
                "tokenizer.ggml.tokens",
                &format_args!("a list of {count}"),
                "a list of 1 to 16777216 tokens",
            )),
            None => self.count("vocab_size", 1 << 24),
        }
    }
}
