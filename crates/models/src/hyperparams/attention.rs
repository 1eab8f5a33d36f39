//! Attention hyperparameters: sliding windows, layers without RoPE, scale, soft cap.

use super::{Hyperparams, Keys, RopeHyperparams};
use crate::ModelError;

/// Hyperparameters of attention.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionHyperparams {
    /// Factor on q.k.
    pub scale: f32,
    /// cap * tanh(score / cap) on the scaled scores.
    pub softcap: Option<f32>,
    /// Layers with sliding-window attention.
    pub window: Option<Window>,
    /// RoPE of layers with a window, where it differs from the other layers'.
    pub window_rope: Option<RopeHyperparams>,
    /// Layers whose queries and keys are rotated.
    pub rotated: LayerSet,
    /// Whether norms of Q and K are per head although every head has its own weights.
    pub head_norm_weights: bool,
}

/// Sliding-window attention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Positions that a token sees, its own included.
    pub positions: u32,
    /// Layers with the window; the others have full attention.
    pub layers: LayerSet,
}

/// Some of a model's layers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayerSet {
    /// Every layer.
    All,
    /// No layer.
    None,
    /// Of every `n` layers all but the last.
    AllButEvery(u32),
    /// Those whose entry is true.
    Listed(Vec<bool>),
}

impl LayerSet {
    /// Whether a layer is one of them.
    pub fn contains(&self, layer: u32) -> bool {
        match self {
            LayerSet::All => true,
            LayerSet::None => false,
            LayerSet::AllButEvery(period) => layer % period < period - 1,
            LayerSet::Listed(layers) => layers[layer as usize],
        }
    }
}

impl AttentionHyperparams {
    /// Attention to all positions with scores scaled by 1 / sqrt(k_dim), rotated in every layer.
    pub fn plain(k_dim: u32) -> AttentionHyperparams {
        AttentionHyperparams {
            scale: (1.0 / f64::from(k_dim).sqrt()) as f32,
            softcap: None,
            window: None,
            window_rope: None,
            rotated: LayerSet::All,
            head_norm_weights: false,
        }
    }

    /// Positions that a token sees in a layer; none for all.
    pub fn window_of(&self, layer: u32) -> Option<u32> {
        self.window.as_ref().filter(|window| window.layers.contains(layer)).map(|window| window.positions)
    }
}

impl Keys<'_> {
    /// The window of `attention.sliding_window` positions, or of `default` ones where the file does
    /// not say, in the layers of `attention.sliding_window_pattern` (a period, or one truth value
    /// for each layer), or in `layers`. None where it is 0.
    pub(crate) fn window(
        &self,
        numbers: &Hyperparams,
        default: Option<u32>,
        layers: LayerSet,
    ) -> Result<Option<Window>, ModelError> {
        let found = self.metadata.uniform_u32(&self.name("attention.sliding_window"))?;
        let layers = self.window_layers(numbers.n_layers)?.unwrap_or(layers);
        let positions = found.or(default).filter(|&positions| positions > 0);
        Ok(positions.map(|positions| Window { positions, layers }))
    }

    fn window_layers(&self, n_layers: u32) -> Result<Option<LayerSet>, ModelError> {
        let key = "attention.sliding_window_pattern";
        if let Some(layers) = self.metadata.bool_list(&self.name(key))? {
            if layers.len() != n_layers as usize {
                let wanted = format!("one truth value for each layer ({n_layers})");
                return Err(self.bad(key, format!("a list of {}", layers.len()), &wanted));
            }
            return Ok(Some(LayerSet::Listed(layers)));
        }
        Ok(match self.metadata.uniform_u32(&self.name(key))? {
            None => None,
            Some(0) => Some(LayerSet::All),
            Some(1) => Some(LayerSet::None),
            Some(period) => Some(LayerSet::AllButEvery(period)),
        })
    }
}
