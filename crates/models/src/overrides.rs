//! Settings that replace the RoPE hyperparameters of a file.

use std::fmt;
use std::str::FromStr;

use crate::hyperparams::{RopeHyperparams, RopeScaling, Yarn};
use crate::{Hyperparams, LayerSet, ModelError};

/// RoPE settings that replace the file's. Absent: the file's value.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RopeOverrides {
    /// The method.
    pub scaling: Option<RopeScalingKind>,
    /// How many times longer the context becomes.
    pub scale: Option<f64>,
    /// The base of the frequencies.
    pub freq_base: Option<f64>,
    /// The factor on the frequencies, the inverse of `scale`.
    pub freq_scale: Option<f64>,
    /// The context length of training.
    pub yarn_original_context: Option<u32>,
    /// Weight of extrapolation, 0 for interpolation alone.
    pub yarn_ext_factor: Option<f64>,
    /// Factor on the magnitude.
    pub yarn_attn_factor: Option<f64>,
    /// Turns in the original context above which a pair keeps its frequency.
    pub yarn_beta_fast: Option<f64>,
    /// Turns in the original context below which a pair is fully interpolated.
    pub yarn_beta_slow: Option<f64>,
}

/// The range of a setting: above one number and up to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OverrideRange {
    above: f64,
    most: f64,
}

impl OverrideRange {
    /// Whether a number is in the range.
    pub fn contains(self, number: f64) -> bool {
        number > self.above && number <= self.most
    }
}

impl fmt::Display for OverrideRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a number above {} and at most {}", self.above, self.most)
    }
}

/// A field of [`RopeOverrides`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeSetting {
    /// [`RopeOverrides::scaling`].
    Scaling,
    /// [`RopeOverrides::scale`].
    Scale,
    /// [`RopeOverrides::freq_base`].
    FreqBase,
    /// [`RopeOverrides::freq_scale`].
    FreqScale,
    /// [`RopeOverrides::yarn_original_context`].
    YarnOriginalContext,
    /// [`RopeOverrides::yarn_ext_factor`].
    YarnExtFactor,
    /// [`RopeOverrides::yarn_attn_factor`].
    YarnAttnFactor,
    /// [`RopeOverrides::yarn_beta_fast`].
    YarnBetaFast,
    /// [`RopeOverrides::yarn_beta_slow`].
    YarnBetaSlow,
}

impl fmt::Display for RopeSetting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            RopeSetting::Scaling => "rope.scaling",
            RopeSetting::Scale => "rope.scale",
            RopeSetting::FreqBase => "rope.freq_base",
            RopeSetting::FreqScale => "rope.freq_scale",
            RopeSetting::YarnOriginalContext => "rope.yarn_original_context",
            RopeSetting::YarnExtFactor => "rope.yarn_ext_factor",
            RopeSetting::YarnAttnFactor => "rope.yarn_attn_factor",
            RopeSetting::YarnBetaFast => "rope.yarn_beta_fast",
            RopeSetting::YarnBetaSlow => "rope.yarn_beta_slow",
        })
    }
}

/// What a rope setting needs to be used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeNeed {
    /// A number in this range.
    Within(OverrideRange),
    /// The name of a method.
    Method,
    /// A context length.
    ContextLength,
    /// A weight of extrapolation.
    ExtFactor,
    /// A model whose positions are rotated, not learned.
    RotatedPositions,
    /// No factor beside the method `none`.
    NoFactor,
    /// One of `scale` and `freq_scale`, not both.
    OneFactor {
        /// The value of `scale`.
        scale: f64,
    },
    /// A factor, since the model has none.
    Factor,
    /// The method `yarn`.
    Yarn {
        /// The method that is in use.
        found: RopeScalingKind,
    },
}

impl fmt::Display for RopeNeed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RopeNeed::Within(range) => range.fmt(formatter),
            RopeNeed::Method => formatter.write_str("none, linear or yarn"),
            RopeNeed::ContextLength => formatter.write_str("a context length"),
            RopeNeed::ExtFactor => formatter.write_str(Yarn::EXT_FACTOR_WANTED),
            RopeNeed::RotatedPositions => {
                formatter.write_str("a model with rotated positions (this one's are learned)")
            }
            RopeNeed::NoFactor => {
                formatter.write_str("no factor with `rope.scaling` none, or `rope.scaling` linear or yarn")
            }
            RopeNeed::OneFactor { scale } => {
                write!(formatter, "only one of it and `rope.scale` (now {scale})")
            }
            RopeNeed::Factor => formatter.write_str("a factor with it, `rope.scale` (the model has none)"),
            RopeNeed::Yarn { found } => {
                write!(
                    formatter,
                    "`rope.scaling` yarn with it (the model's rope scaling is {})",
                    found.name()
                )
            }
        }
    }
}

/// A method of context extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RopeScalingKind {
    /// Frequencies as trained.
    None,
    /// Positions divided by a factor.
    Linear,
    /// YaRN.
    Yarn,
}

impl RopeScalingKind {
    /// Every kind, in declaration order.
    pub const ALL: [RopeScalingKind; 3] =
        [RopeScalingKind::None, RopeScalingKind::Linear, RopeScalingKind::Yarn];

    /// The name that metadata and the command line use.
    pub const fn name(self) -> &'static str {
        match self {
            RopeScalingKind::None => "none",
            RopeScalingKind::Linear => "linear",
            RopeScalingKind::Yarn => "yarn",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<RopeScalingKind> {
        RopeScalingKind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl FromStr for RopeScalingKind {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        RopeScalingKind::from_name(text)
            .ok_or_else(|| refused(RopeSetting::Scaling, format!("{text:?}"), RopeNeed::Method))
    }
}

impl RopeOverrides {
    /// Range of `scale` and `freq_scale`.
    pub const FACTOR: OverrideRange = OverrideRange { above: 0.0, most: 1e6 };
    /// Range of `freq_base`.
    pub const BASE: OverrideRange = OverrideRange { above: 1.0, most: 1e15 };
    /// Range of `yarn_attn_factor`.
    pub const MAGNITUDE: OverrideRange = OverrideRange { above: 0.0, most: 1e3 };
    /// Range of `yarn_beta_fast` and `yarn_beta_slow`.
    pub const TURNS: OverrideRange = OverrideRange { above: 0.0, most: 1e6 };

    /// Applies the settings to a model's hyperparameters.
    ///
    /// # Errors
    /// Any setting for a model without rotated positions, a number out of its range, `scale`
    /// together with `freq_scale`, a method without a factor where the model has none, or a YaRN
    /// setting where the method is not YaRN. No setting is ignored.
    pub fn apply(&self, hyperparams: &mut Hyperparams) -> Result<(), ModelError> {
        if let (LayerSet::None, Some((setting, value))) = (&hyperparams.attention.rotated, self.first()) {
            return Err(refused(setting, value, RopeNeed::RotatedPositions));
        }
        let context = hyperparams.context_length;
        let rope = &mut hyperparams.rope;
        if let Some(base) = self.freq_base {
            rope.base = within(RopeSetting::FreqBase, base, Self::BASE)?;
        }
        if let Some(factor) = self.yarn_attn_factor {
            rope.magnitude =
                within(RopeSetting::YarnAttnFactor, factor, Self::MAGNITUDE)? * rope.file_magnitude;
        }
        rope.scaling = self.scaling_of(rope, context)?;
        Ok(())
    }

    fn scaling_of(&self, rope: &RopeHyperparams, context: u32) -> Result<RopeScaling, ModelError> {
        let factor = self.factor()?;
        let kind = match self.scaling {
            Some(kind) => kind,
            None if rope.scaling == RopeScaling::None && factor.is_some() => RopeScalingKind::Linear,
            None => rope.scaling.kind(),
        };
        let factor_or_files = factor.unwrap_or_else(|| rope.scaling.factor());
        self.refuse_method_without_factor(factor, factor_or_files)?;
        match kind {
            RopeScalingKind::Yarn => self.yarn_of(rope, factor_or_files, context),
            other => {
                self.refuse_yarn_settings(other)?;
                match (other, factor) {
                    (RopeScalingKind::None, Some(factor)) => {
                        Err(refused(RopeSetting::Scale, factor.to_string(), RopeNeed::NoFactor))
                    }
                    (RopeScalingKind::None, None) => Ok(RopeScaling::None),
                    _ => Ok(RopeScaling::linear(factor_or_files)),
                }
            }
        }
    }

    fn yarn_of(&self, rope: &RopeHyperparams, factor: f64, context: u32) -> Result<RopeScaling, ModelError> {
        let mut yarn = rope.scaling.yarn_or(context);
        yarn.factor = factor;
        if let Some(original) = self.yarn_original_context {
            yarn.original_context = original;
            if original == 0 {
                return Err(refused(
                    RopeSetting::YarnOriginalContext,
                    original.to_string(),
                    RopeNeed::ContextLength,
                ));
            }
        }
        if let Some(ext_factor) = self.yarn_ext_factor {
            yarn.ext_factor = Yarn::checked_ext_factor(ext_factor).ok_or_else(|| {
                refused(RopeSetting::YarnExtFactor, ext_factor.to_string(), RopeNeed::ExtFactor)
            })?;
        }
        if let Some(beta_fast) = self.yarn_beta_fast {
            yarn.beta_fast = within(RopeSetting::YarnBetaFast, beta_fast, Self::TURNS)?;
        }
        if let Some(beta_slow) = self.yarn_beta_slow {
            yarn.beta_slow = within(RopeSetting::YarnBetaSlow, beta_slow, Self::TURNS)?;
        }
        Ok(RopeScaling::Yarn(yarn))
    }

    fn factor(&self) -> Result<Option<f64>, ModelError> {
        match (self.scale, self.freq_scale) {
            (Some(scale), Some(freq_scale)) => {
                Err(refused(RopeSetting::FreqScale, freq_scale.to_string(), RopeNeed::OneFactor { scale }))
            }
            (Some(scale), None) => within(RopeSetting::Scale, scale, Self::FACTOR).map(Some),
            (None, Some(scale)) => Ok(Some(1.0 / within(RopeSetting::FreqScale, scale, Self::FACTOR)?)),
            (None, None) => Ok(None),
        }
    }

    /// The first setting that is given: its name and its value.
    fn first(&self) -> Option<(RopeSetting, String)> {
        let number = |value: Option<f64>| value.map(|value| value.to_string());
        let others = [
            (RopeSetting::Scaling, self.scaling.map(|kind| kind.name().to_owned())),
            (RopeSetting::Scale, number(self.scale)),
            (RopeSetting::FreqBase, number(self.freq_base)),
            (RopeSetting::FreqScale, number(self.freq_scale)),
        ];
        let yarn = || self.first_of_yarn().map(|(setting, value)| (setting, value.to_string()));
        others.into_iter().find_map(|(setting, value)| Some((setting, value?))).or_else(yarn)
    }

    fn first_of_yarn(&self) -> Option<(RopeSetting, f64)> {
        let settings = [
            (RopeSetting::YarnOriginalContext, self.yarn_original_context.map(f64::from)),
            (RopeSetting::YarnExtFactor, self.yarn_ext_factor),
            (RopeSetting::YarnAttnFactor, self.yarn_attn_factor),
            (RopeSetting::YarnBetaFast, self.yarn_beta_fast),
            (RopeSetting::YarnBetaSlow, self.yarn_beta_slow),
        ];
        settings.into_iter().find_map(|(setting, value)| Some((setting, value?)))
    }

    /// A method stretches nothing by the factor 1, unless that was asked for, or a magnitude with
    /// it.
    fn refuse_method_without_factor(
        &self,
        factor: Option<f64>,
        factor_or_files: f64,
    ) -> Result<(), ModelError> {
        match self.scaling.filter(|kind| *kind != RopeScalingKind::None) {
            Some(kind) if factor.is_none() && factor_or_files == 1.0 && self.yarn_attn_factor.is_none() => {
                Err(refused(RopeSetting::Scaling, kind.name().to_owned(), RopeNeed::Factor))
            }
            _ => Ok(()),
        }
    }

    fn refuse_yarn_settings(&self, kind: RopeScalingKind) -> Result<(), ModelError> {
        match self.first_of_yarn() {
            Some((setting, value)) => {
                Err(refused(setting, value.to_string(), RopeNeed::Yarn { found: kind }))
            }
            None => Ok(()),
        }
    }
}

fn within(setting: RopeSetting, value: f64, range: OverrideRange) -> Result<f64, ModelError> {
    if range.contains(value) {
        Ok(value)
    } else {
        Err(refused(setting, value.to_string(), RopeNeed::Within(range)))
    }
}

fn refused(setting: RopeSetting, value: String, needs: RopeNeed) -> ModelError {
    ModelError::BadRope { setting, value, needs }
}
