use std::fmt;
use std::str::FromStr;

use crate::hyperparams::{RopeHyperparams, RopeScaling, Yarn};
use crate::{Hyperparams, LayerSet, ModelError};

/// Rope settings that take the place of the file's. Absent means: as the file says.
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

/// A method of stretching the context.
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
            .ok_or_else(|| refused("`rope.scaling`", format!("{text:?}"), "none, linear or yarn"))
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

    /// Puts the settings into a model's hyperparameters.
    ///
    /// # Errors
    /// Any setting for a model without rotated positions, a number out of its range, `scale` together with `freq_scale`, a method without a factor where the model has none, or a YaRN
    /// setting where the method is not YaRN: nothing that is asked for is quietly ignored.
    pub fn apply(&self, hyperparams: &mut Hyperparams) -> Result<(), ModelError> {
        if let (LayerSet::None, Some((option, value))) = (&hyperparams.attention.rotated, self.first()) {
            return Err(refused(option, value, "a model with rotated positions (this one's are learned)"));
        }
        let context = hyperparams.context_length;
        let rope = &mut hyperparams.rope;
        if let Some(base) = self.freq_base {
            rope.base = within("`rope.freq_base`", base, Self::BASE)?;
        }
        if let Some(factor) = self.yarn_attn_factor {
            rope.magnitude =
                within("`rope.yarn_attn_factor`", factor, Self::MAGNITUDE)? * rope.file_magnitude;
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
                    (RopeScalingKind::None, Some(factor)) => Err(refused(
                        "`rope.scale`",
                        factor.to_string(),
                        "no factor with `rope.scaling` none, or `rope.scaling` linear or yarn",
                    )),
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
                    "`rope.yarn_original_context`",
                    original.to_string(),
                    "a context length",
                ));
            }
        }
        if let Some(ext_factor) = self.yarn_ext_factor {
            yarn.ext_factor = Yarn::checked_ext_factor(ext_factor).ok_or_else(|| {
                refused("`rope.yarn_ext_factor`", ext_factor.to_string(), Yarn::EXT_FACTOR_WANTED)
            })?;
        }
        if let Some(beta_fast) = self.yarn_beta_fast {
            yarn.beta_fast = within("`rope.yarn_beta_fast`", beta_fast, Self::TURNS)?;
        }
        if let Some(beta_slow) = self.yarn_beta_slow {
            yarn.beta_slow = within("`rope.yarn_beta_slow`", beta_slow, Self::TURNS)?;
        }
        Ok(RopeScaling::Yarn(yarn))
    }

    fn factor(&self) -> Result<Option<f64>, ModelError> {
        match (self.scale, self.freq_scale) {
            (Some(scale), Some(freq_scale)) => Err(refused(
                "`rope.freq_scale`",
                freq_scale.to_string(),
                &format!("only one of it and `rope.scale` (now {scale})"),
            )),
            (Some(scale), None) => within("`rope.scale`", scale, Self::FACTOR).map(Some),
            (None, Some(scale)) => Ok(Some(1.0 / within("`rope.freq_scale`", scale, Self::FACTOR)?)),
            (None, None) => Ok(None),
        }
    }

    /// The first setting that is given: its name and its value.
    fn first(&self) -> Option<(&'static str, String)> {
        let number = |value: Option<f64>| value.map(|value| value.to_string());
        let others = [
            ("`rope.scaling`", self.scaling.map(|kind| kind.name().to_owned())),
            ("`rope.scale`", number(self.scale)),
            ("`rope.freq_base`", number(self.freq_base)),
            ("`rope.freq_scale`", number(self.freq_scale)),
        ];
        let yarn = || self.first_of_yarn().map(|(option, value)| (option, value.to_string()));
        others.into_iter().find_map(|(option, value)| Some((option, value?))).or_else(yarn)
    }

    fn first_of_yarn(&self) -> Option<(&'static str, f64)> {
        let settings = [
            ("`rope.yarn_original_context`", self.yarn_original_context.map(f64::from)),
            ("`rope.yarn_ext_factor`", self.yarn_ext_factor),
            ("`rope.yarn_attn_factor`", self.yarn_attn_factor),
            ("`rope.yarn_beta_fast`", self.yarn_beta_fast),
            ("`rope.yarn_beta_slow`", self.yarn_beta_slow),
        ];
        settings.into_iter().find_map(|(option, value)| Some((option, value?)))
    }

    /// A method stretches nothing by the factor 1, unless that was asked for, or a magnitude with it.
    fn refuse_method_without_factor(
        &self,
        factor: Option<f64>,
        factor_or_files: f64,
    ) -> Result<(), ModelError> {
        match self.scaling.filter(|kind| *kind != RopeScalingKind::None) {
            Some(kind) if factor.is_none() && factor_or_files == 1.0 && self.yarn_attn_factor.is_none() => {
                let wanted = "a factor with it, `rope.scale` (the model has none)";
                Err(refused("`rope.scaling`", kind.name().to_owned(), wanted))
            }
            _ => Ok(()),
        }
    }

    fn refuse_yarn_settings(&self, kind: RopeScalingKind) -> Result<(), ModelError> {
        match self.first_of_yarn() {
            Some((option, value)) => {
                let wanted =
                    format!("`rope.scaling` yarn with it (the model's rope scaling is {})", kind.name());
                Err(refused(option, value.to_string(), &wanted))
            }
            None => Ok(()),
        }
    }
}

fn within(option: &str, value: f64, range: OverrideRange) -> Result<f64, ModelError> {
    if range.contains(value) {
        Ok(value)
    } else {
        Err(refused(option, value.to_string(), &range.to_string()))
    }
}

fn refused(option: &str, value: String, wanted: &str) -> ModelError {
    ModelError::BadOverride { option: option.to_owned(), value, wanted: wanted.to_owned() }
}
