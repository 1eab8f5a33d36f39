//! Sampling flags.

use clap::Args;
use minfer::engine::SamplingParams;

use super::values::{self, Seed, Stages};

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
        value_parser = values::number(0.0..=f32::MAX, "a number from 0 on")
    )]
    temperature: f32,
    /// Keep this many of the most probable tokens; 0 = all.
    #[arg(long, value_name = "N", default_value_t = 40, env = "MINFER_TOP_K")]
    top_k: u32,
    /// Keep the most probable tokens up to this much probability; 1 = all.
    #[arg(long, value_name = "N", default_value_t = 0.95, env = "MINFER_TOP_P",
          value_parser = values::number(0.0..=1.0, "a number from 0 to 1"))]
    top_p: f32,
    /// Keep tokens at least this probable as a share of the most probable; 0 = all.
    #[arg(long, value_name = "N", default_value_t = 0.05, env = "MINFER_MIN_P",
          value_parser = values::number(0.0..=1.0, "a number from 0 to 1"))]
    min_p: f32,
    /// Divide the logits of repeated tokens by this; 1 = off.
    #[arg(long, value_name = "N", default_value_t = 1.0, env = "MINFER_REPEAT_PENALTY",
          value_parser = values::number(f32::MIN_POSITIVE..=f32::MAX, "a number above 0"))]
    repeat_penalty: f32,
    /// Number of last tokens that the penalties look at; 0 = none, -1 = all; needs a penalty.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 64,
        env = "MINFER_REPEAT_LAST_N",
        value_parser = clap::value_parser!(i32).range(-1..)
    )]
    repeat_last_n: i32,
    /// Subtracted from the logits of tokens that occurred.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0.0,
        env = "MINFER_PRESENCE_PENALTY",
        value_parser = values::number(f32::MIN..=f32::MAX, "a number")
    )]
    presence_penalty: f32,
    /// Subtracted from the logits of tokens, once for each time they occurred.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0.0,
        env = "MINFER_FREQUENCY_PENALTY",
        value_parser = values::number(f32::MIN..=f32::MAX, "a number")
    )]
    frequency_penalty: f32,
    /// Added to a token's logit: ID=BIAS, for example 15=-1.5; a list with commas, or repeated.
    #[arg(long, value_name = "ID=BIAS", env = "MINFER_LOGIT_BIAS", value_delimiter = ',',
          value_parser = values::bias)]
    logit_bias: Vec<(u32, f32)>,
    /// Sampling stages in order, with semicolons between them; flags of a stage that is left out
    /// have no effect.
    #[arg(
        long,
        value_name = "LIST",
        default_value = "penalties;top_k;top_p;min_p;temperature",
        env = "MINFER_SAMPLERS",
        value_parser = values::stages
    )]
    samplers: Stages,
    /// Seed of the random numbers; -1 = a random seed, which is reported.
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
