//! Multipliers of embeddings, residuals and logits.

use super::Keys;
use crate::ModelError;

/// Multipliers and soft cap; 1 and `None` where a model has none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scales {
    /// Factor on rows of the embedding.
    pub embedding: f32,
    /// Factor on the output of attention and of the MLP, before the residual add.
    pub residual: f32,
    /// Factor on logits.
    pub logits: f32,
    /// cap * tanh(logit / cap) on the scaled logits.
    pub logit_softcap: Option<f32>,
}

impl Default for Scales {
    fn default() -> Self {
        Scales { embedding: 1.0, residual: 1.0, logits: 1.0, logit_softcap: None }
    }
}

impl Keys<'_> {
    /// A factor from the metadata; `None` where the file does not have it or says 0, which stands
    /// for none.
    pub(crate) fn factor(&self, key: &str) -> Result<Option<f32>, ModelError> {
        match self.metadata.f64(&self.name(key))? {
            None | Some(0.0) => Ok(None),
            Some(_) => self.number(key, None, 1e6).map(|factor| Some(factor as f32)),
        }
    }
}
