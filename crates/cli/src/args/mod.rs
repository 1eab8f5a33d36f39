//! What users type. Every knob is declared here, once: its flag, its variable, its help, its default.

mod model;
mod sampling;
mod units;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub(crate) use model::{ContextArgs, ModelArgs};
pub(crate) use sampling::SamplingArgs;

/// Run language models on this machine.
#[derive(Debug, Parser)]
#[command(
    name = "minfer",
    version,
    about,
    after_help = "MODEL is a path to a GGUF file, a name from `minfer list`, or pip:PACKAGE. \
                  `minfer MODEL PROMPT` is short for `minfer run MODEL PROMPT`."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer one prompt.
    Run(Box<RunArgs>),
    /// Bring a model into the cache.
    Pull(PullArgs),
    /// List the models in the cache and those that can be pulled.
    List(ListArgs),
    /// Remove a model from the cache.
    Rm(RmArgs),
    /// Show what a model file holds.
    Show(Box<ShowArgs>),
    /// Turn text into token ids.
    Tokenize(TokenizeArgs),
    /// Turn token ids into text.
    Detokenize(DetokenizeArgs),
    /// Print the distribution after every token of a JSON array of ids on stdin.
    Logprobs(Box<LogprobsArgs>),
    /// Measure how well a model predicts a text.
    Perplexity(Box<PerplexityArgs>),
    /// Measure speed, as tokens per second and as a share of the machine's limit.
    Bench(Box<BenchArgs>),
    /// Show what this machine has and what a model would take.
    Doctor(Box<DoctorArgs>),
    /// Print completions for a shell.
    Completions(CompletionsArgs),
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The model.
    pub(crate) model: String,
    /// The prompt; without it, -f or stdin.
    pub(crate) prompt: Option<String>,
    /// Read the prompt from a file.
    #[arg(short = 'f', long = "file", value_name = "FILE", conflicts_with = "prompt")]
    pub(crate) file: Option<PathBuf>,
    /// Feed the prompt as it is, without the model's chat template.
    #[arg(long, env = "MINFER_RAW")]
    pub(crate) raw: bool,
    /// System message of the conversation.
    #[arg(long, value_name = "TEXT", env = "MINFER_SYSTEM", conflicts_with = "raw")]
    pub(crate) system: Option<String>,
    /// Variables for the chat template.
    #[arg(long, value_name = "JSON", env = "MINFER_CHAT_TEMPLATE_KWARGS", conflicts_with = "raw")]
    pub(crate) chat_template_kwargs: Option<String>,
    /// Tokens to generate at most; -1 = up to the context's end, 0 = only feed the prompt.
    #[arg(
        short = 'n',
        long = "n-predict",
        visible_aliases = ["max-tokens", "predict"],
        value_name = "N",
        default_value = "-1",
        env = "MINFER_N_PREDICT",
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(i64).range(-1..=i64::from(u32::MAX))
    )]
    pub(crate) n_predict: i64,
    /// End before this text; may be repeated.
    #[arg(long = "stop", value_name = "TEXT")]
    pub(crate) stop: Vec<String>,
    /// Never choose an end-of-generation token.
    #[arg(long, env = "MINFER_IGNORE_EOS")]
    pub(crate) ignore_eos: bool,
    /// Print one JSON object with text, ids, finish_reason, usage and timings.
    #[arg(long)]
    pub(crate) json: bool,
    /// End stderr with one JSON line of facts about the run.
    #[arg(long)]
    pub(crate) facts: bool,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) model_args: ModelArgs,
    #[command(flatten)]
    pub(crate) context: ContextArgs,
}

/// Arguments of `pull`.
#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// A name from `minfer list`, or pip:PACKAGE[==VERSION].
    pub(crate) name: String,
}

/// Arguments of `list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `rm`.
#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// A name from `minfer list`.
    pub(crate) name: String,
}

/// How a graph is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GraphFormat {
    /// Graphviz source.
    Dot,
    /// JSON.
    Json,
    /// A picture, through Graphviz.
    Svg,
}

/// Arguments of `show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The model.
    pub(crate) model: String,
    /// List every tensor.
    #[arg(long)]
    pub(crate) tensors: bool,
    /// Print JSON.
    #[arg(long, conflicts_with = "graph")]
    pub(crate) json: bool,
    /// Draw the model's graph.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) graph: Option<GraphFormat>,
    /// Draw only this layer.
    #[arg(long, value_name = "N", requires = "graph")]
    pub(crate) layer: Option<u32>,
    /// Draw the graph as the model's family builds it, before rewriting.
    #[arg(long, requires = "graph")]
    pub(crate) before: bool,
    #[command(flatten)]
    pub(crate) model_args: ModelArgs,
}

/// Arguments of `tokenize`.
#[derive(Debug, Args)]
pub(crate) struct TokenizeArgs {
    /// The model.
    pub(crate) model: String,
    /// The text; without it, stdin.
    pub(crate) text: Option<String>,
    /// Add the tokens that begin and end a text.
    #[arg(long)]
    pub(crate) add_special: bool,
    /// Take the spelling of special tokens as plain text.
    #[arg(long)]
    pub(crate) no_parse_special: bool,
    /// Print a JSON array of ids.
    #[arg(long, conflicts_with = "jsonl")]
    pub(crate) json: bool,
    /// Read one {"text", "add_special", "parse_special"} a line, write one {"ids"} a line.
    #[arg(long, conflicts_with = "text")]
    pub(crate) jsonl: bool,
    /// Name of the pre-tokenizer in place of the file's.
    #[arg(long, value_name = "NAME", env = "MINFER_TOKENIZER_PRE")]
    pub(crate) tokenizer_pre: Option<String>,
}

/// Arguments of `detokenize`.
#[derive(Debug, Args)]
pub(crate) struct DetokenizeArgs {
    /// The model.
    pub(crate) model: String,
    /// The ids; without them, a JSON array on stdin.
    pub(crate) ids: Vec<u32>,
    /// Leave out control tokens.
    #[arg(long)]
    pub(crate) hide_special: bool,
}

/// Arguments of `logprobs`.
#[derive(Debug, Args)]
pub(crate) struct LogprobsArgs {
    /// The model.
    pub(crate) model: String,
    /// Most probable tokens to print for each position.
    #[arg(long, value_name = "K", default_value_t = 5)]
    pub(crate) top: u32,
    /// End stderr with one JSON line of facts about the run.
    #[arg(long)]
    pub(crate) facts: bool,
    #[command(flatten)]
    pub(crate) model_args: ModelArgs,
    #[command(flatten)]
    pub(crate) context: ContextArgs,
}

/// Arguments of `perplexity`.
#[derive(Debug, Args)]
pub(crate) struct PerplexityArgs {
    /// The model.
    pub(crate) model: String,
    /// The text.
    pub(crate) file: PathBuf,
    /// Tokens of a window; each is scored in its second half, as other engines do.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) window: u32,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
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
    /// The model.
    pub(crate) model: String,
    /// Tokens of a prefill test; 0 = none; a list makes several.
    #[arg(short = 'p', long = "n-prompt", value_name = "N", default_value = "512", value_delimiter = ',')]
    pub(crate) n_prompt: Vec<u32>,
    /// Tokens of a decode test; 0 = none; a list makes several.
    #[arg(short = 'n', long = "n-gen", value_name = "N", default_value = "128", value_delimiter = ',')]
    pub(crate) n_gen: Vec<u32>,
    /// Tokens in the cache before a test; a list makes several.
    #[arg(short = 'd', long = "n-depth", value_name = "N", default_value = "0", value_delimiter = ',')]
    pub(crate) n_depth: Vec<u32>,
    /// Repetitions, of which the median counts; a warm-up comes before them.
    #[arg(short = 'r', long = "repetitions", value_name = "R", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) repetitions: u32,
    /// How to print.
    #[arg(short = 'o', long = "output", value_name = "FORMAT", default_value = "md")]
    pub(crate) output: BenchFormat,
    #[command(flatten)]
    pub(crate) model_args: ModelArgs,
    #[command(flatten)]
    pub(crate) context: ContextArgs,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// A model to look at.
    pub(crate) model: Option<String>,
    /// List every knob: flag, variable, default, help.
    #[arg(long)]
    pub(crate) knobs: bool,
    /// Show the geometry of the model's KV cache.
    #[arg(long, requires = "model")]
    pub(crate) kv: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) model_args: ModelArgs,
    #[command(flatten)]
    pub(crate) context: ContextArgs,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}

/// The command line as clap knows it, with the short form of `run` in place.
pub(crate) fn definition() -> clap::Command {
    Cli::command()
}

/// Reads a command line. A first word that is neither a command nor a flag is a model to run.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    let definition = definition();
    if let Some(first) = words.get(1).and_then(|word| word.to_str()) {
        let is_command = first == "help" || definition.find_subcommand(first).is_some();
        if !is_command && !first.starts_with('-') {
            words.insert(1, "run".into());
        }
    }
    Cli::from_arg_matches(&definition.try_get_matches_from(words)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(words: &[&str]) -> Result<Command, clap::Error> {
        parse(["minfer"].iter().chain(words).map(OsString::from)).map(|cli| cli.command)
    }

    #[test]
    fn the_definition_is_sound() {
        definition().debug_assert();
    }

    #[test]
    fn a_model_alone_is_run() {
        let Ok(Command::Run(run)) = command(&["smollm2", "hello", "-n", "3"]) else { panic!("not run") };
        assert_eq!((run.model.as_str(), run.prompt.as_deref(), run.n_predict), ("smollm2", Some("hello"), 3));
    }

    #[test]
    fn counts_of_tokens_are_checked() {
        for (given, good) in [("-1", true), ("0", true), ("-2", false), ("x", false), ("4294967296", false)] {
            let parsed = command(&["run", "m", "p", "-n", given]);
            assert_eq!(parsed.is_ok(), good, "{given}");
            if let Err(error) = parsed {
                assert_eq!(error.exit_code(), 2);
            }
        }
    }

    #[test]
    fn unknown_values_name_the_choices() {
        let error = command(&["run", "m", "--isa", "sse"]).unwrap_err().to_string();
        assert!(error.contains("avx512"), "{error}");
        let error = command(&["run", "m", "--cache-type", "q2"]).unwrap_err().to_string();
        assert!(error.contains("bf16"), "{error}");
    }
}
