//! Sampling parameters: their ranges, defaults and the order of the stages.

use std::fmt;
use std::str::FromStr;

/// Sampling parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingParams {
    /// Logits are divided by it; 0 takes the most probable token, ties by lower id.
    pub temperature: f32,
    /// Keep this many of the most probable tokens; 0 is off.
    pub top_k: u32,
    /// Keep the most probable tokens that together reach this probability; 1 is off.
    pub top_p: f32,
    /// Keep tokens at least this probable in proportion to the most probable one; 0 is off.
    pub min_p: f32,
    /// Repetition penalty: positive logits of recent tokens are divided by it, negative ones
    /// multiplied; 1 is off.
    pub repeat_penalty: f32,
    /// How many recent tokens the penalties look at, the prompt included; 0 is off, -1 all.
    pub repeat_last_n: i32,
    /// Subtracted from the logits of recent tokens; 0 is off.
    pub presence_penalty: f32,
    /// Subtracted from the logits of recent tokens, once for each occurrence; 0 is off.
    pub frequency_penalty: f32,
    /// Added to the logits of tokens before anything else; negative infinity bans one.
    pub logit_bias: Vec<(u32, f32)>,
    /// The stages in order; one that is left out does nothing.
    pub order: Vec<Stage>,
}

impl Default for SamplingParams {
    fn default() -> SamplingParams {
        SamplingParams {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            logit_bias: Vec::new(),
            order: Stage::ALL.to_vec(),
        }
    }
}

impl SamplingParams {
    /// The most probable token each time.
    pub fn greedy() -> SamplingParams {
        SamplingParams { temperature: 0.0, ..SamplingParams::default() }
    }

    /// Checks every value for a model of `vocab` tokens.
    ///
    /// # Errors
    /// The first parameter out of its range, by name.
    pub fn validate(&self, vocab: usize) -> Result<(), ParamError> {
        let ranges = [
            (Param::Temperature, self.temperature, self.temperature >= 0.0, "at least 0"),
            (Param::TopP, self.top_p, (0.0..=1.0).contains(&self.top_p), "from 0 to 1"),
            (Param::MinP, self.min_p, (0.0..=1.0).contains(&self.min_p), "from 0 to 1"),
            (Param::RepeatPenalty, self.repeat_penalty, self.repeat_penalty > 0.0, "above 0"),
            (Param::PresencePenalty, self.presence_penalty, true, "a finite number"),
            (Param::FrequencyPenalty, self.frequency_penalty, true, "a finite number"),
        ];
        for (param, value, in_range, range) in ranges {
            if !in_range || !value.is_finite() {
                return Err(ParamError::OutOfRange { param, value: value.to_string(), range });
            }
        }
        if self.repeat_last_n < -1 {
            let value = self.repeat_last_n.to_string();
            return Err(ParamError::OutOfRange { param: Param::RepeatLastN, value, range: "at least -1" });
        }
        for &(id, bias) in &self.logit_bias {
            if id as usize >= vocab {
                return Err(ParamError::BiasToken { id, vocab });
            }
            if bias.is_nan() || bias == f32::INFINITY {
                let value = bias.to_string();
                return Err(ParamError::OutOfRange {
                    param: Param::LogitBias,
                    value,
                    range: "below infinity",
                });
            }
        }
        let twice = (1..self.order.len()).find(|&index| self.order[..index].contains(&self.order[index]));
        match twice {
            Some(index) => Err(ParamError::Repeated(self.order[index])),
            None => Ok(()),
        }
    }
}

/// A parameter that has a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Param {
    /// [`SamplingParams::temperature`].
    Temperature,
    /// [`SamplingParams::top_p`].
    TopP,
    /// [`SamplingParams::min_p`].
    MinP,
    /// [`SamplingParams::repeat_penalty`].
    RepeatPenalty,
    /// [`SamplingParams::repeat_last_n`].
    RepeatLastN,
    /// [`SamplingParams::presence_penalty`].
    PresencePenalty,
    /// [`SamplingParams::frequency_penalty`].
    FrequencyPenalty,
    /// [`SamplingParams::logit_bias`].
    LogitBias,
}

impl fmt::Display for Param {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Param::Temperature => "temperature",
            Param::TopP => "top_p",
            Param::MinP => "min_p",
            Param::RepeatPenalty => "repeat_penalty",
            Param::RepeatLastN => "repeat_last_n",
            Param::PresencePenalty => "presence_penalty",
            Param::FrequencyPenalty => "frequency_penalty",
            Param::LogitBias => "logit_bias",
        })
    }
}

/// One stage of sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Repeat, presence and frequency penalties.
    Penalties,
    /// A fixed number of the most probable tokens.
    TopK,
    /// The most probable tokens up to a total probability.
    TopP,
    /// Tokens not much less probable than the best.
    MinP,
    /// Division of the logits.
    Temperature,
}

impl Stage {
    /// Every stage, in the default order.
    pub const ALL: [Stage; 5] = [Stage::Penalties, Stage::TopK, Stage::TopP, Stage::MinP, Stage::Temperature];

    /// The stage's name as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Penalties => "penalties",
            Stage::TopK => "top_k",
            Stage::TopP => "top_p",
            Stage::MinP => "min_p",
            Stage::Temperature => "temperature",
        }
    }

    /// Whether the best candidate stays the best whatever the parameters are.
    pub(super) const fn keeps_the_best(self) -> bool {
        match self {
            Stage::Penalties => false,
            Stage::TopK | Stage::TopP | Stage::MinP | Stage::Temperature => true,
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Stage {
    type Err = ParamError;

    fn from_str(text: &str) -> Result<Stage, ParamError> {
        let stage = Stage::ALL.into_iter().find(|stage| stage.name() == text);
        stage.ok_or_else(|| ParamError::UnknownStage {
            name: text.to_owned(),
            choices: Stage::ALL.map(Stage::name).join(", "),
        })
    }
}

/// A sampling parameter that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParamError {
    /// A number out of its range.
    #[error("`{param}` is {value}, but must be {range}")]
    OutOfRange {
        /// The parameter.
        param: Param,
        /// What was given.
        value: String,
        /// What is accepted.
        range: &'static str,
    },
    /// A bias for a token that the model does not have.
    #[error("`logit_bias` names token {id}, which is outside the vocabulary of {vocab} tokens")]
    BiasToken {
        /// The token.
        id: u32,
        /// Tokens that the model has.
        vocab: usize,
    },
    /// A stage that is listed twice.
    #[error("`samplers` lists {0} twice")]
    Repeated(Stage),
    /// Not a stage.
    #[error("`samplers` names {name:?}, which is none of {choices}")]
    UnknownStage {
        /// What was given.
        name: String,
        /// What is accepted.
        choices: String,
    },
}
