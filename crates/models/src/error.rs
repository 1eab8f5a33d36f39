//! Why a file cannot be run as a model.

use minfer_formats::gguf::GgufError;
use minfer_tensor::DType;

use crate::{RopeNeed, RopeSetting};

/// Why a file cannot be run as a model. Messages name options by their fields.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The file itself is at fault.
    #[error(transparent)]
    File(#[from] GgufError),
    /// The family of the file is not read.
    #[error("architecture {found:?} is not read by this build{}; it reads {}", hint(*nearest), known.join(", "))]
    UnknownArchitecture {
        /// What the file states.
        found: String,
        /// A family with a similar name.
        nearest: Option<&'static str>,
        /// Every family that is read.
        known: Vec<&'static str>,
    },
    /// The metadata lacks a key.
    #[error("metadata key {key} is missing: {wanted} is needed")]
    MissingKey {
        /// The key.
        key: String,
        /// What its value would be.
        wanted: String,
    },
    /// A metadata value that cannot be used.
    #[error("metadata key {key} is {value}: {wanted} is needed")]
    BadValue {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What is needed.
        wanted: String,
    },
    /// An override of a tokenizer's list or of a chat template.
    #[error(
        "`metadata` {key}: lists of the tokenizer and chat templates cannot be overridden; `tokenizer_pre` and \
         `chat_template` replace the pre-tokenizer and the chat template"
    )]
    TokenizerOverride {
        /// The key.
        key: String,
    },
    /// An override of an unknown key.
    #[error("`metadata` {key}: the file has no such key, and the model reads none{}", hint(nearest.as_deref()))]
    UselessOverride {
        /// The key.
        key: String,
        /// A similar key.
        nearest: Option<String>,
    },
    /// A text that is no metadata override.
    #[error("{text:?} is no metadata override: {wanted} is needed")]
    OverrideSyntax {
        /// The text.
        text: String,
        /// What would be right.
        wanted: &'static str,
    },
    /// A metadata override of another type than the key has.
    #[error("`metadata` {key} is {value}: {wanted} is needed")]
    BadOverride {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What is needed.
        wanted: &'static str,
    },
    /// A rope setting that cannot be used.
    #[error("`{setting}` is {value}: {needs} is needed")]
    BadRope {
        /// The setting.
        setting: RopeSetting,
        /// Its value.
        value: String,
        /// What is needed.
        needs: RopeNeed,
    },
    /// The metadata asks for a feature that this build does not have.
    #[error("{architecture} with {what} is not read by this build (metadata key {key} is {value})")]
    Unsupported {
        /// The family.
        architecture: String,
        /// The feature's name.
        what: &'static str,
        /// The key that asks for it.
        key: String,
        /// Its value.
        value: String,
    },
    /// The file lacks a tensor.
    #[error("tensor {name} is missing: the model needs it with shape {wanted:?}")]
    MissingTensor {
        /// The tensor.
        name: String,
        /// Its shape, outermost first.
        wanted: Vec<u32>,
    },
    /// A tensor has another shape than the metadata implies.
    #[error("tensor {name} has shape {found:?}: the model needs {wanted:?}")]
    TensorShape {
        /// The tensor.
        name: String,
        /// The file's shape, outermost first.
        found: Vec<u64>,
        /// The shape that the metadata implies.
        wanted: Vec<u32>,
    },
    /// A tensor has a type that its use does not allow.
    #[error("tensor {name} is stored as {found}: {wanted} is needed")]
    TensorType {
        /// The tensor.
        name: String,
        /// The file's type.
        found: DType,
        /// What is needed.
        wanted: &'static str,
    },
    /// A constant of the graph has a value that cannot be used.
    #[error("tensor {name} holds {value} at {index}: a positive, finite number is needed")]
    TensorValue {
        /// The tensor.
        name: String,
        /// Position of the element.
        index: usize,
        /// The element.
        value: f32,
    },
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!(" (did you mean {name}?)"))
}
