//! Hyperparameters of a model, read from metadata and checked.

mod attention;
mod keys;
mod rope;
mod scales;

use minfer_graph::{NormKind, RopePairs};

pub use attention::{AttentionHyperparams, LayerSet, Window};
pub(crate) use keys::Keys;
pub use rope::{ContextFactors, RopeHyperparams, RopeScaling, Yarn};
pub use scales::Scales;

use crate::ModelError;

/// The hyperparameters of a model, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Hyperparams {
    /// Layers.
    pub n_layers: u32,
    /// Elements of a hidden state.
    pub hidden_size: u32,
    /// Query heads of a layer.
    pub heads: u32,
    /// Key and value heads of a layer; divides `heads`.
    pub kv_heads: u32,
    /// Elements of a query or key head.
    pub k_dim: u32,
    /// Elements of a value head.
    pub v_dim: u32,
    /// Elements of a row inside the MLP.
    pub feed_forward: u32,
    /// Tokens of the vocabulary.
    pub vocab: u32,
    /// Positions that the model was trained for.
    pub context_length: u32,
    /// RMSNorm or LayerNorm.
    pub norm_kind: NormKind,
    /// Added under the root of norms.
    pub norm_eps: f32,
    /// Windows, scale and soft cap of attention.
    pub attention: AttentionHyperparams,
    /// RoPE.
    pub rope: RopeHyperparams,
    /// Multipliers of embeddings, residuals and logits.
    pub scales: Scales,
}

impl Hyperparams {
    /// Reads the keys that families share, `{architecture}.block_count` and so on: every layer
    /// attends to all positions, rotates, and scales scores by 1 / sqrt(k_dim); nothing else is
    /// scaled. A family then changes what is different.
    ///
    /// # Errors
    /// A key is missing, a number is out of its range or does not fit the others, or a key asks
    /// for a feature that no family here has.
    pub(crate) fn read(
        keys: &Keys<'_>,
        pairs: RopePairs,
        norm_kind: NormKind,
    ) -> Result<Hyperparams, ModelError> {
        keys.refuse_bidirectional()?;
        keys.refuse_number("attention.clamp_kqv", "clamped projections")?;
        keys.refuse_number("attention.max_alibi_bias", "position biases of scores")?;
        let hidden_size = keys.count("embedding_length", 1 << 20)?;
        let heads = keys.count("attention.head_count", 1 << 12)?;
        let kv_heads = keys.count_or("attention.head_count_kv", 1 << 12, heads)?;
        if !heads.is_multiple_of(kv_heads) {
            let wanted = format!("a divisor of {} = {heads}", keys.name("attention.head_count"));
            return Err(keys.bad("attention.head_count_kv", kv_heads, &wanted));
        }
        let k_dim = keys.head_dim("attention.key_length", hidden_size, heads)?;
        let context_length = keys.count("context_length", 1 << 30)?;
        let eps = match norm_kind {
            NormKind::Rms => "attention.layer_norm_rms_epsilon",
            NormKind::Layer => "attention.layer_norm_epsilon",
        };
        Ok(Hyperparams {
            n_layers: keys.count("block_count", 1 << 12)?,
            hidden_size,
            heads,
            kv_heads,
            k_dim,
            v_dim: keys.head_dim("attention.value_length", hidden_size, heads)?,
            feed_forward: keys.count("feed_forward_length", 1 << 24)?,
            vocab: keys.vocab()?,
            context_length,
            norm_kind,
            norm_eps: keys.number(eps, None, 1.0)? as f32,
            attention: AttentionHyperparams::plain(k_dim),
            rope: keys.rope(pairs, k_dim, context_length)?,
            scales: Scales::default(),
        })
    }

    /// Scales scores by 1 / sqrt(hidden_size / heads) in the member of a family that has this many
    /// layers.
    pub(crate) fn scale_by_hidden_size_per_head(&mut self, n_layers: u32) {
        if self.n_layers == n_layers {
            self.attention.scale = (1.0 / f64::from(self.hidden_size / self.heads).sqrt()) as f32;
        }
    }

    /// Context length without a setting: the trained one. For a model with RoPE divisors for short
    /// and long contexts it is the original context length, with the divisors for short ones.
    pub fn default_context(&self) -> u32 {
        match self.rope.context_factors {
            Some(_) => self.context_length.min(self.rope.original_context),
            None => self.context_length,
        }
    }

    /// Elements of a row of all query heads.
    pub fn q_size(&self) -> u32 {
        self.heads * self.k_dim
    }

    /// Elements of a row of all key heads.
    pub fn k_size(&self) -> u32 {
        self.kv_heads * self.k_dim
    }

    /// Elements of a row of all value heads.
    pub fn v_size(&self) -> u32 {
        self.kv_heads * self.v_dim
    }

    /// Elements of an output row of attention.
    pub fn attention_output_size(&self) -> u32 {
        self.heads * self.v_dim
    }

    /// RoPE of a layer; `None` for a layer without positions (NoPE).
    pub fn rope_of(&self, layer: u32) -> Option<&RopeHyperparams> {
        let local = self.attention.window_of(layer).and(self.attention.window_rope.as_ref());
        self.attention.rotated.contains(layer).then(|| local.unwrap_or(&self.rope))
    }
}
