use std::fmt;
use std::sync::Arc;

use minfer_graph::RopePairs;

use crate::metadata::bad_value;
use crate::overrides::RopeScalingKind;
use crate::{Metadata, ModelError};

/// The numbers that describe a model, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Hyperparams {
    /// Layers.
    pub n_layers: u32,
    /// Elements of a hidden row.
    pub width: u32,
    /// Query heads of a layer.
    pub heads: u32,
    /// Key and value heads of a layer; divides `heads`.
    pub kv_heads: u32,
    /// Elements of a query or key head.
    pub k_dim: u32,
    /// Elements of a value head.
    pub v_dim: u32,
    /// Elements of a row inside the feed-forward part.
    pub feed_forward: u32,
    /// Tokens of the vocabulary.
    pub vocab: u32,
    /// Positions that the model was trained for.
    pub context_length: u32,
    /// Added under the root of norms.
    pub norm_eps: f32,
    /// Rotation of queries and keys.
    pub rope: RopeHyperparams,
}

/// How queries and keys are rotated.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeHyperparams {
    /// Which elements of a head form a pair.
    pub pairs: RopePairs,
    /// Rotated elements of a head; even, at most the key dim.
    pub dims: u32,
    /// Base of the frequencies.
    pub base: f64,
    /// How the context is stretched.
    pub scaling: RopeScaling,
    /// Divisors of the frequencies, one for each pair, where the file has them (llama 3).
    pub factors: Option<Arc<[f32]>>,
    /// Factor on the rotated elements, before the one that YaRN adds.
    pub magnitude: f64,
    /// The part of `magnitude` that no override replaces: `rope.scaling.attn_factor`.
    pub file_magnitude: f64,
}

/// A method of stretching the context.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeScaling {
    /// Frequencies as trained.
    None,
    /// Frequencies divided by a factor.
    Linear {
        /// How many times longer the context becomes.
        factor: f64,
    },
    /// Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models".
    Yarn(Yarn),
}

/// The settings of YaRN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Yarn {
    /// How many times longer the context becomes.
    pub factor: f64,
    /// The context length of training.
    pub original_context: u32,
    /// Weight of extrapolation where the ramp asks for it: 1, or 0 for interpolation alone.
    pub ext_factor: f64,
    /// Turns in the original context above which a pair keeps its frequency.
    pub beta_fast: f64,
    /// Turns in the original context below which a pair is fully interpolated.
    pub beta_slow: f64,
}

impl Hyperparams {
    /// Reads the keys that llama-like families share, `{architecture}.block_count` and so on.
    ///
    /// # Errors
    /// A key is missing, or a number is zero, absurd, or does not fit the others.
    pub fn read(
        metadata: &Metadata<'_>,
        architecture: &str,
        pairs: RopePairs,
    ) -> Result<Hyperparams, ModelError> {
        let keys = Keys { metadata, architecture };
        let width = keys.count("embedding_length", 1 << 20)?;
        let heads = keys.count("attention.head_count", 1 << 12)?;
        let kv_heads = keys.count_or("attention.head_count_kv", 1 << 12, heads)?;
        if !heads.is_multiple_of(kv_heads) {
            let wanted = format!("a divisor of {} = {heads}", keys.name("attention.head_count"));
            return Err(keys.bad("attention.head_count_kv", kv_heads, &wanted));
        }
        let k_dim = keys.head_dim("attention.key_length", width, heads)?;
        let context_length = keys.count("context_length", 1 << 30)?;
        Ok(Hyperparams {
            n_layers: keys.count("block_count", 1 << 12)?,
            width,
            heads,
            kv_heads,
            k_dim,
            v_dim: keys.head_dim("attention.value_length", width, heads)?,
            feed_forward: keys.count("feed_forward_length", 1 << 24)?,
            vocab: keys.vocab()?,
            context_length,
            norm_eps: keys.number("attention.layer_norm_rms_epsilon", None, 1.0)? as f32,
            rope: keys.rope(pairs, k_dim, context_length)?,
        })
    }

    /// Elements of a row of all query heads.
    pub fn q_width(&self) -> u32 {
        self.heads * self.k_dim
    }

    /// Elements of a row of all key heads.
    pub fn k_width(&self) -> u32 {
        self.kv_heads * self.k_dim
    }

    /// Elements of a row of all value heads.
    pub fn v_width(&self) -> u32 {
        self.kv_heads * self.v_dim
    }

    /// Elements of a row of what attention yields.
    pub fn attention_width(&self) -> u32 {
        self.heads * self.v_dim
    }
}

impl RopeScaling {
    /// Linear scaling, or none where the factor is 1.
    pub fn linear(factor: f64) -> RopeScaling {
        if factor == 1.0 { RopeScaling::None } else { RopeScaling::Linear { factor } }
    }

    /// The method's name.
    pub fn kind(&self) -> RopeScalingKind {
        match self {
            RopeScaling::None => RopeScalingKind::None,
            RopeScaling::Linear { .. } => RopeScalingKind::Linear,
            RopeScaling::Yarn(_) => RopeScalingKind::Yarn,
        }
    }

    /// How many times longer the context becomes.
    pub fn factor(&self) -> f64 {
        match self {
            RopeScaling::None => 1.0,
            RopeScaling::Linear { factor } => *factor,
            RopeScaling::Yarn(yarn) => yarn.factor,
        }
    }

    /// The YaRN settings in use, or the usual ones for a model trained for `context` positions.
    pub(crate) fn yarn_or(&self, context: u32) -> Yarn {
        match self {
            RopeScaling::Yarn(yarn) => *yarn,
            other => Yarn { factor: other.factor(), ..Yarn::usual(context) },
        }
    }
}

impl Yarn {
    /// The paper's settings, without stretch.
    pub fn usual(original_context: u32) -> Yarn {
        Yarn { factor: 1.0, original_context, ext_factor: 1.0, beta_fast: 32.0, beta_slow: 1.0 }
    }

    pub(crate) const EXT_FACTOR_WANTED: &'static str = "a number from 0 to 1, or below 0 for the usual one";

    /// Numbers from 0 to 1 as they are, the usual value for negative ones.
    pub(crate) fn checked_ext_factor(value: f64) -> Option<f64> {
        match value {
            value if value < 0.0 => Some(Yarn::usual(1).ext_factor),
            value if value <= 1.0 => Some(value),
            _ => None,
        }
    }
}

/// The metadata keys of one architecture.
pub(crate) struct Keys<'m> {
    pub(crate) metadata: &'m Metadata<'m>,
    pub(crate) architecture: &'m str,
}

impl Keys<'_> {
    /// Refuses a feature that a non-zero number under `key` switches on.
    pub(crate) fn refuse_count(&self, key: &str, what: &'static str) -> Result<(), ModelError> {
        match self.metadata.uniform_u32(&self.name(key))? {
            None | Some(0) => Ok(()),
            Some(count) => Err(self.unsupported(key, &count, what)),
        }
    }

    /// Refuses windows that are shorter than the context.
    pub(crate) fn refuse_window(&self, context_length: u32) -> Result<(), ModelError> {
        let key = "attention.sliding_window";
        match self.metadata.uniform_u32(&self.name(key))? {
            Some(window) if (1..context_length).contains(&window) => {
                Err(self.unsupported(key, &window, "sliding-window attention"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses models whose tokens see later ones.
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

    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.architecture)
    }

    fn bad(&self, key: &str, value: impl fmt::Display, wanted: &str) -> ModelError {
        bad_value(&self.name(key), &value, wanted)
    }

    fn missing(&self, key: &str, wanted: &str) -> ModelError {
        ModelError::MissingKey { key: self.name(key), wanted: wanted.to_owned() }
    }

    fn optional_count(&self, key: &str, most: u32) -> Result<Option<u32>, ModelError> {
        match self.metadata.uniform_u32(&self.name(key))? {
            Some(value) if value == 0 || value > most => {
                Err(self.bad(key, value, &format!("a number from 1 to {most}")))
            }
            other => Ok(other),
        }
    }

    fn count_or(&self, key: &str, most: u32, default: u32) -> Result<u32, ModelError> {
        Ok(self.optional_count(key, most)?.unwrap_or(default))
    }

    fn count(&self, key: &str, most: u32) -> Result<u32, ModelError> {
        let wanted = || self.missing(key, &format!("a number from 1 to {most}"));
        self.optional_count(key, most)?.ok_or_else(wanted)
    }

    /// A number above 0 and at most `most`.
    fn number(&self, key: &str, default: Option<f64>, most: f64) -> Result<f64, ModelError> {
        let wanted = format!("a number above 0 and at most {most}");
        match self.metadata.f64(&self.name(key))? {
            Some(value) if value > 0.0 && value <= most => Ok(value),
            Some(value) => Err(self.bad(key, value, &wanted)),
            None => default.ok_or_else(|| self.missing(key, &wanted)),
        }
    }

    fn head_dim(&self, key: &str, width: u32, heads: u32) -> Result<u32, ModelError> {
        if let Some(dim) = self.optional_count(key, 1 << 13)? {
            return Ok(dim);
        }
        if !width.is_multiple_of(heads) {
            let wanted =
                format!("a divisor of {} = {width}, or {}", self.name("embedding_length"), self.name(key));
            return Err(self.bad("attention.head_count", heads, &wanted));
        }
        Ok(width / heads)
    }

    /// The tokenizer's tokens, which the embedding has rows for; `vocab_size` where the file has no tokenizer.
    fn vocab(&self) -> Result<u32, ModelError> {
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

    fn rope(&self, pairs: RopePairs, k_dim: u32, context: u32) -> Result<RopeHyperparams, ModelError> {
        let dims = self.count_or("rope.dimension_count", 1 << 13, k_dim)?;
        if !dims.is_multiple_of(2) || dims > k_dim {
            let wanted = format!("an even number of at most {k_dim}, the elements of a head");
            return Err(self.bad("rope.dimension_count", dims, &wanted));
        }
        let base = self.number("rope.freq_base", Some(10_000.0), 1e15)?;
        if base <= 1.0 {
            return Err(self.bad("rope.freq_base", base, "a number above 1"));
        }
        let file_magnitude = self.number("rope.scaling.attn_factor", Some(1.0), 1e3)?;
        let yarn_magnitude = self.number("rope.scaling.yarn_attn_factor", Some(1.0), 1e3)?;
        Ok(RopeHyperparams {
            pairs,
            dims,
            base,
            scaling: self.rope_scaling(context)?,
            factors: None,
            magnitude: file_magnitude * yarn_magnitude,
            file_magnitude,
        })
    }

    /// A factor without a type is a linear one.
    fn rope_scaling(&self, context: u32) -> Result<RopeScaling, ModelError> {
        let factor = self.rope_factor()?;
        let key = "rope.scaling.type";
        let kind = self.metadata.string(&self.name(key))?.unwrap_or("linear");
        match RopeScalingKind::from_name(kind) {
            Some(RopeScalingKind::None) => Ok(RopeScaling::None),
            Some(RopeScalingKind::Linear) => Ok(RopeScaling::linear(factor)),
            Some(RopeScalingKind::Yarn) => self.yarn(factor, context).map(RopeScaling::Yarn),
            None => Err(self.bad(key, format!("{kind:?}"), "none, linear or yarn")),
        }
    }

    /// The stretch; files of old keep it under another key, and 0 stands for none.
    fn rope_factor(&self) -> Result<f64, ModelError> {
        let key = if self.metadata.contains(&self.name("rope.scaling.factor")) {
            "rope.scaling.factor"
        } else {
            "rope.scale_linear"
        };
        match self.metadata.f64(&self.name(key))? {
            Some(0.0) => Ok(1.0),
            _ => self.number(key, Some(1.0), 1e6),
        }
    }

    fn yarn(&self, factor: f64, context: u32) -> Result<Yarn, ModelError> {
        let usual = Yarn::usual(context);
        let key = "rope.scaling.yarn_ext_factor";
        let ext_factor = self.metadata.f64(&self.name(key))?.unwrap_or(usual.ext_factor);
        Ok(Yarn {
            factor,
            original_context: self.count_or("rope.scaling.original_context_length", 1 << 30, context)?,
            ext_factor: Yarn::checked_ext_factor(ext_factor)
                .ok_or_else(|| self.bad(key, ext_factor, Yarn::EXT_FACTOR_WANTED))?,
            beta_fast: self.number("rope.scaling.yarn_beta_fast", Some(usual.beta_fast), 1e6)?,
            beta_slow: self.number("rope.scaling.yarn_beta_slow", Some(usual.beta_slow), 1e6)?,
        })
    }
}
