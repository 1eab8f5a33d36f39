use std::io;

use minfer_cpu::IsaError;
use minfer_formats::gguf::GgufError;
use minfer_graph::{ExecutorError, KvSpecError};
use minfer_models::ModelError;
use minfer_text::{TemplateError, TokenizerError};

use crate::{BudgetError, Stretch, Suggestion};

/// Why a model could not be loaded. Messages name options by their fields.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file is not a model file that can be read.
    #[error(transparent)]
    File(#[from] GgufError),
    /// This build cannot run the file as a model.
    #[error("{}{cause}", place(path, cause))]
    Model {
        /// The file.
        path: String,
        /// What is wrong.
        cause: ModelError,
    },
    /// The file's tokenizer cannot be built.
    #[error("{path}: tokenizer: {cause}{}", other_token(cause))]
    Tokenizer {
        /// The file.
        path: String,
        /// What is wrong.
        cause: TokenizerError,
    },
    /// The chat template cannot be compiled.
    #[error("{path}: {cause}")]
    Template {
        /// The file.
        path: String,
        /// What is wrong.
        cause: TemplateError,
    },
    /// No chat template has the name that was asked for.
    #[error("no chat template has the name {name:?}; formats: {}{}", known.join(", "), of_file(own))]
    UnknownTemplate {
        /// What was asked for.
        name: String,
        /// Names of the file's own templates.
        own: Vec<String>,
        /// Formats known by name.
        known: Vec<String>,
    },
    /// The vocabulary and the model's embedding table differ.
    #[error("{path}: the vocabulary has size {tokens} in the tokenizer and {rows} in the embedding table")]
    VocabularySize {
        /// The file.
        path: String,
        /// Tokens of the tokenizer.
        tokens: usize,
        /// Rows of the table.
        rows: u32,
    },
    /// The KV cache cannot have this form.
    #[error(transparent)]
    Kv(#[from] KvSpecError),
    /// A context longer than the model's.
    #[error("a context of {asked} positions is asked for, the model has {most}{}", longer(*stretch))]
    ContextTooLong {
        /// What was asked for.
        asked: u32,
        /// The model's context length, times the factor of rope settings.
        most: u32,
        /// What makes it longer.
        stretch: Stretch,
    },
    /// A setting that must not be zero.
    #[error("`{0}` must be at least 1")]
    Zero(&'static str),
    /// A context shift of a model with learned positions.
    #[error("the positions of this model are learned, so a context shift is impossible (`context_shift`)")]
    LearnedPositions,
    /// The model does not fit into memory. Nothing was allocated.
    #[error("not enough memory: {refused}")]
    Memory {
        /// The part that does not fit, and the numbers.
        refused: BudgetError,
        /// Settings that suffice, each entry by itself.
        suggestions: Vec<Suggestion>,
    },
    /// The KV cache of one sequence is larger than `kv_memory`. Nothing was allocated.
    #[error(
        "not enough memory for the KV cache: a context of {n_ctx} takes {needed} bytes, `kv_memory` allows {allowed}"
    )]
    KvMemory {
        /// Positions of the sequence.
        n_ctx: u32,
        /// Bytes of their rows.
        needed: u64,
        /// Bytes that the cache may take.
        allowed: u64,
        /// Settings that suffice, each entry by itself.
        suggestions: Vec<Suggestion>,
    },
    /// The instruction set is unknown or absent.
    #[error(transparent)]
    Isa(#[from] IsaError),
    /// The operating system refused threads.
    #[error("starting compute threads ({threads}): {cause}")]
    Threads {
        /// How many were asked for.
        threads: usize,
        /// Its error.
        cause: io::Error,
    },
    /// The graphs could not be compiled.
    #[error(transparent)]
    Executor(#[from] ExecutorError),
}

/// The file name, in front of a cause that does not name a file.
fn place(path: &str, cause: &ModelError) -> String {
    match cause {
        ModelError::File(error) if error.path().is_some() => String::new(),
        _ => format!("{path}: "),
    }
}

/// What gives a special token another id.
fn other_token(cause: &TokenizerError) -> String {
    let TokenizerError::IdOutOfRange { name, tokens, .. } = cause else { return String::new() };
    let key = match *name {
        "unk" => "unknown",
        "pad" => "padding",
        "sep" => "seperator",
        other => other,
    };
    format!("; `metadata` tokenizer.ggml.{key}_token_id=int:ID with an ID below {tokens} replaces it")
}

fn longer(stretch: Stretch) -> &'static str {
    match stretch {
        Stretch::Never => ", and its learned positions end there",
        Stretch::Scaling => "; longer needs `rope.scaling` with `rope.scale`",
        Stretch::Scale => "; longer needs a larger `rope.scale`",
        Stretch::FreqScale => "; longer needs a smaller `rope.freq_scale`",
    }
}

fn of_file(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; of this file: {}", names.join(", ")) }
}
