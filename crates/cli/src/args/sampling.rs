//! Flags that say how tokens are chosen.

use clap::Args;
use minfer::engine::SamplingParams;

use super::values::{self, Seed, Stages};

/// Sampling flags.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Temperature; 0 = always the most probable token.
    #[arg(
        id = "temp",
        long = "temp",
        visible_alias = "temperature",
        value_name = "N",
        default_value_t = 0.8,
        env = "MINFER_TEMP",
        value_parser = values::from_zero
    )]
    temperature: f32,
    /// Keep this many of the most probable tokens; 0 = all.
    #[arg(long, value_name = "N", default_value_t = 40, env = "MINFER_TOP_K",
          value_parser = values::whole::<u32>(0..=values::U32_MAX))]
    top_k: u32,
    /// Keep the most probable tokens up to this much probability; 1 = all.
    #[arg(long, value_name = "N", default_value_t = 0.95, env = "MINFER_TOP_P",
          value_parser = values::share)]
    top_p: f32,
    /// Keep tokens at least this probable as a share of the most probable; 0 = all.
    #[arg(long, value_name = "N", default_value_t = 0.05, env = "MINFER_MIN_P",
          value_parser = values::share)]
    min_p: f32,
    /// Divide the logits of repeated tokens by this; 1 = off.
    #[arg(long, value_name = "N", default_value_t = 1.0, env = "MINFER_REPEAT_PENALTY",
          value_parser = values::above_zero)]
    repeat_penalty: f32,
    /// Tokens that penalties look back at; 0 = none, -1 = all; needs a penalty.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 64,
        env = "MINFER_REPEAT_LAST_N",
        value_parser = values::whole::<i32>(-1..=i32::MAX.into())
    )]
    repeat_last_n: i32,
    /// Taken from the logits of tokens that occurred.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0.0,
        env = "MINFER_PRESENCE_PENALTY",
        value_parser = values::finite
    )]
    presence_penalty: f32,
    /// Taken from the logits of tokens for each time they occurred.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0.0,
        env = "MINFER_FREQUENCY_PENALTY",
        value_parser = values::finite
    )]
    frequency_penalty: f32,
    /// Added to a token's logit: ID=BIAS, for example 15=-1.5; a list with commas, or repeated.
    #[arg(long, value_name = "ID=BIAS", env = "MINFER_LOGIT_BIAS", value_delimiter = ',',
          value_parser = values::bias)]
    logit_bias: Vec<(u32, f32)>,
    /// Stages in order, separated by semicolons; the flags of one that is left out have no effect.
    #[arg(
        long,
        value_name = "LIST",
        default_value = "penalties;top_k;top_p;min_p;temperature",
        env = "MINFER_SAMPLERS",
        value_parser = values::stages
    )]
    samplers: Stages,
    /// Key of the random draws; -1 = a random one, which is reported.
    #[arg(short = 's', long, value_name = "N", default_value = "-1", env = "MINFER_SEED",
          value_parser = values::seed)]
    seed: Seed,
}

impl SamplingArgs {
    /// The seed, where one is given.
    pub(crate) fn seed(&self) -> Option<u64> {
        match self.seed {
            Seed::Random => None,
            Seed::Fixed(seed) => Some(seed),
        }
    }

    /// The parameters as the engine takes them.
    pub(crate) fn params(&self) -> SamplingParams {
        SamplingParams {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty,
            repeat_last_n: self.repeat_last_n,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            logit_bias: self.logit_bias.clone(),
            order: self.samplers.0.clone(),
        }
    }
}
