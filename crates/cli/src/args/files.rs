//! Arguments of `pull`, `list`, `rm`, `show`, `doctor` and `completions`.

use std::ffi::OsString;

use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};

use super::model::{ContextArgs, ModelArgs};

#[derive(Debug, Args)]
pub(crate) struct PullArgs {
    /// A name from `minfer list`, or pip:PACKAGE[==VERSION].
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RmArgs {
    /// A name from `minfer list`.
    pub(crate) name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum GraphFormat {
    /// Graphviz source.
    Dot,
    /// JSON.
    Json,
    /// A picture, through Graphviz.
    Svg,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// A path to a GGUF file, a name from `minfer list`, or pip:PACKAGE[==VERSION].
    pub(crate) model: OsString,
    /// List every tensor.
    #[arg(long, conflicts_with = "graph")]
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
    /// Draw the graph before rewrites, as the model's family builds it.
    #[arg(long, requires = "graph")]
    pub(crate) before: bool,
    #[command(flatten)]
    pub(crate) model_args: ModelArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// A model; flags of models and contexts need it.
    pub(crate) model: Option<OsString>,
    /// List every knob: flag, variable, help, default, and the value that the variable has now.
    #[arg(long, conflicts_with_all = ["model", "kv", "threads", "isa", "memory_limit"])]
    pub(crate) knobs: bool,
    /// Show the geometry of the model's KV cache.
    #[arg(long, requires = "model", conflicts_with_all = ["n_batch", "memory_limit", "kv_memory", "context_shift", "rewrites_off"])]
    pub(crate) kv: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) model_args: ModelArgs,
    #[command(flatten)]
    pub(crate) context: ContextArgs,
    /// Include the spare blocks that a context shift needs.
    #[arg(long, env = "MINFER_CONTEXT_SHIFT", value_parser = BoolishValueParser::new())]
    pub(crate) context_shift: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}
