//! RoPE hyperparameters and context extension: linear scaling, YaRN, LongRoPE.

use std::sync::Arc;

use minfer_graph::RopePairs;

use super::Keys;
use crate::ModelError;
use crate::overrides::RopeScalingKind;

/// Hyperparameters of RoPE.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeHyperparams {
    /// Which elements of a head form a pair.
    pub pairs: RopePairs,
    /// Rotated elements of a head; even, at most the key dim.
    pub dims: u32,
    /// Base of the frequencies.
    pub base: f64,
    /// Method of context extension.
    pub scaling: RopeScaling,
    /// The context length of training, before extension.
    pub original_context: u32,
    /// Divisors of the frequencies, one for each pair, where the file has them (llama 3; those in
    /// use where they depend on the context).
    pub factors: Option<Arc<[f32]>>,
    /// Whether the file says that it has such divisors for short and for long contexts.
    pub long: bool,
    /// Divisors for short and for long contexts, of which one becomes `factors` (phi3).
    pub context_factors: Option<ContextFactors>,
    /// Factor on the rotated elements, before the one that YaRN adds.
    pub magnitude: f64,
    /// The part of `magnitude` that no override replaces: `rope.scaling.attn_factor`.
    pub file_magnitude: f64,
}

/// Divisors of the frequencies that depend on the context that a model is run with. (Ding et al.,
/// "LongRoPE".)
#[derive(Debug, Clone, PartialEq)]
pub struct ContextFactors {
    /// For contexts up to the original one, one for each pair.
    pub short: Arc<[f32]>,
    /// For longer contexts, one for each pair.
    pub long: Arc<[f32]>,
}

impl RopeHyperparams {
    /// Chooses the divisors for sequences of at most `n_ctx` positions, where they depend on it.
    pub(crate) fn choose_factors(&mut self, n_ctx: u32) {
        if let Some(ContextFactors { short, long }) = &self.context_factors {
            let chosen = if n_ctx > self.original_context { long } else { short };
            self.factors = Some(Arc::clone(chosen));
        }
    }
}

/// A method of context extension.
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
    /// The paper's settings with factor 1.
    pub fn usual(original_context: u32) -> Yarn {
        Yarn { factor: 1.0, original_context, ext_factor: 1.0, beta_fast: 32.0, beta_slow: 1.0 }
    }

    /// What [`checked_ext_factor`](Self::checked_ext_factor) takes.
    pub const EXT_FACTOR_WANTED: &'static str = "a number from 0 to 1, or below 0 for the usual one";

    /// Numbers from 0 to 1 as they are, the usual value for negative ones.
    pub fn checked_ext_factor(value: f64) -> Option<f64> {
        match value {
            value if value < 0.0 => Some(Yarn::usual(1).ext_factor),
            value if value <= 1.0 => Some(value),
            _ => None,
        }
    }
}

impl Keys<'_> {
    pub(super) fn rope(
        &self,
        pairs: RopePairs,
        k_dim: u32,
        context: u32,
    ) -> Result<RopeHyperparams, ModelError> {
        let dims = self.count_or("rope.dimension_count", 1 << 13, k_dim)?;
        if !dims.is_multiple_of(2) || dims > k_dim {
            let wanted = format!("an even number of at most {k_dim}, the elements of a head");
            return Err(self.bad("rope.dimension_count", dims, &wanted));
        }
        let base = self.rope_base("rope.freq_base", 10_000.0)?;
        let file_magnitude = self.number("rope.scaling.attn_factor", Some(1.0), 1e3)?;
        let yarn_magnitude = self.number("rope.scaling.yarn_attn_factor", Some(1.0), 1e3)?;
        Ok(RopeHyperparams {
            pairs,
            dims,
            base,
            scaling: self.rope_scaling(context)?,
            original_context: self.original_context(context)?,
            factors: None,
            long: self.is_long_rope()?,
            context_factors: None,
            magnitude: file_magnitude * yarn_magnitude,
            file_magnitude,
        })
    }

    /// The base of the frequencies under a key.
    pub(crate) fn rope_base(&self, key: &str, default: f64) -> Result<f64, ModelError> {
        match self.number(key, Some(default), 1e15)? {
            base if base > 1.0 => Ok(base),
            base => Err(self.bad(key, base, "a number above 1")),
        }
    }

    /// A factor without a type is a linear one.
    fn rope_scaling(&self, context: u32) -> Result<RopeScaling, ModelError> {
        let factor = self.rope_factor()?;
        let key = "rope.scaling.type";
        let kind = self.metadata.string(&self.name(key))?.unwrap_or("linear");
        if self.is_long_rope()? && self.long_rope {
            return Ok(RopeScaling::linear(factor));
        }
        match RopeScalingKind::from_name(kind) {
            Some(RopeScalingKind::None) => Ok(RopeScaling::None),
            Some(RopeScalingKind::Linear) => Ok(RopeScaling::linear(factor)),
            Some(RopeScalingKind::Yarn) => self.yarn(factor, context).map(RopeScaling::Yarn),
            None => Err(self.bad(key, format!("{kind:?}"), "none, linear or yarn")),
        }
    }

    /// Whether the file asks for LongRoPE.
    fn is_long_rope(&self) -> Result<bool, ModelError> {
        Ok(self.metadata.string(&self.name("rope.scaling.type"))? == Some("longrope"))
    }

    /// The factor of context extension; old files have another key, and 0 means none.
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

    fn original_context(&self, context: u32) -> Result<u32, ModelError> {
        self.count_or("rope.scaling.original_context_length", 1 << 30, context)
    }

    fn yarn(&self, factor: f64, context: u32) -> Result<Yarn, ModelError> {
        let usual = Yarn::usual(context);
        let key = "rope.scaling.yarn_ext_factor";
        let ext_factor = self.metadata.f64(&self.name(key))?.unwrap_or(usual.ext_factor);
        Ok(Yarn {
            factor,
            original_context: self.original_context(context)?,
            ext_factor: Yarn::checked_ext_factor(ext_factor)
                .ok_or_else(|| self.bad(key, ext_factor, Yarn::EXT_FACTOR_WANTED))?,
            beta_fast: self.number("rope.scaling.yarn_beta_fast", Some(usual.beta_fast), 1e6)?,
            beta_slow: self.number("rope.scaling.yarn_beta_slow", Some(usual.beta_slow), 1e6)?,
        })
    }
}
