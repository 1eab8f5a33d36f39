//! Arguments of the commands about files, this machine and this program: `pull`, `list`, `rm`, `show`, `doctor`,
//! `completions`.

use clap::{Args, ValueEnum};

use super::model::{ContextArgs, ModelArgs};
use super::values;

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
    /// A path to a GGUF file, a name from `minfer list`, or pip:PACKAGE[==VERSION].
    pub(crate) model: String,
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
    #[arg(long, value_name = "N", requires = "graph", value_parser = values::whole::<u32>(0..=values::U32_MAX))]
    pub(crate) layer: Option<u32>,
    /// Draw the graph as the model's family builds it, before rewriting.
    #[arg(long, requires = "graph")]
    pub(crate) before: bool,
    #[command(flatten)]
    pub(crate) model_args: ModelArgs,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// A model to look at; flags of models and contexts need it.
    pub(crate) model: Option<String>,
    /// List every knob: flag, variable, help, default, and the value that the variable has now.
    #[arg(long, conflicts_with_all = ["model", "kv"])]
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
    /// Count the room to spare that a context shift needs.
    #[arg(long, env = "MINFER_CONTEXT_SHIFT", value_parser = values::switch)]
    pub(crate) context_shift: bool,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: clap_complete::Shell,
}
