//! Flags that say how tokens are chosen.

use clap::Args;
use minfer::engine::{SamplingParams, Stage};

/// Sampling flags.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Temperature; 0 = always the most probable token.
    #[arg(
        long = "temp",
        visible_alias = "temperature",
        value_name = "N",
        default_value_t = 0.8,
        env = "MINFER_TEMP"
    )]
    temperature: f32,
    /// Keep this many of the most probable tokens; 0 = all.
    #[arg(long, value_name = "N", default_value_t = 40, env = "MINFER_TOP_K")]
    top_k: u32,
    /// Keep the most probable tokens up to this much probability; 1 = all.
    #[arg(long, value_name = "N", default_value_t = 0.95, env = "MINFER_TOP_P")]
    top_p: f32,
    /// Keep tokens at least this probable as a share of the most probable; 0 = all.
    #[arg(long, value_name = "N", default_value_t = 0.05, env = "MINFER_MIN_P")]
    min_p: f32,
    /// Divide the logits of repeated tokens by this; 1 = off.
    #[arg(long, value_name = "N", default_value_t = 1.0, env = "MINFER_REPEAT_PENALTY")]
    repeat_penalty: f32,
    /// Tokens that penalties look back at; 0 = none, -1 = all.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 64,
        allow_negative_numbers = true,
        env = "MINFER_REPEAT_LAST_N"
    )]
    repeat_last_n: i32,
    /// Taken from the logits of tokens that occurred.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0.0,
        allow_negative_numbers = true,
        env = "MINFER_PRESENCE_PENALTY"
    )]
    presence_penalty: f32,
    /// Taken from the logits of tokens for each time they occurred.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0.0,
        allow_negative_numbers = true,
        env = "MINFER_FREQUENCY_PENALTY"
    )]
    frequency_penalty: f32,
    /// Added to a token's logit: ID=BIAS, for example 15=-1.5; may be repeated.
    #[arg(long, value_name = "ID=BIAS", value_parser = bias)]
    logit_bias: Vec<(u32, f32)>,
    /// Stages in order, separated by semicolons.
    #[arg(
        long,
        value_name = "LIST",
        default_value = "penalties;top_k;top_p;min_p;temperature",
        value_delimiter = ';',
        env = "MINFER_SAMPLERS"
    )]
    samplers: Vec<Stage>,
    /// Key of the random draws; without it a random one, which is reported.
    #[arg(short = 's', long, value_name = "N", env = "MINFER_SEED")]
    pub(crate) seed: Option<u64>,
}

impl SamplingArgs {
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
            order: self.samplers.clone(),
        }
    }
}

fn bias(text: &str) -> Result<(u32, f32), String> {
    let pair = text
        .split_once('=')
        .and_then(|(id, bias)| Some((id.trim().parse().ok()?, bias.trim().parse().ok()?)));
    pair.ok_or_else(|| format!("{text:?} is not ID=BIAS"))
}
