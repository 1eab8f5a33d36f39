//! Model families: from a file's metadata and tensor names to the graphs of a model.
//!
//! A family is one file in [`arch`] with three functions (hyperparameters, tensors, graph) and one
//! row in [`FAMILIES`]. Blocks that families share are in [`blocks`]. This crate knows no backend.
#![forbid(unsafe_code)]

pub mod arch;
pub mod blocks;
mod error;
mod family;
mod hyperparams;
mod load;
mod metadata;
mod nearest;
mod overrides;
mod rules;
mod tensors;

pub use error::ModelError;
pub use family::{FAMILIES, Family};
pub use hyperparams::{
    AttentionHyperparams, ContextFactors, Hyperparams, LayerSet, RopeHyperparams, RopeScaling, Scales,
    Window, Yarn,
};
pub use load::{FileWeights, Model, ModelOptions};
pub use metadata::{Metadata, MetadataOverride, MetadataValue, Overrides, TOKENIZER_KEYS};
pub use overrides::{OverrideRange, RopeNeed, RopeOverrides, RopeScalingKind, RopeSetting};
pub use rules::{LayerRules, Rules};
pub use tensors::{AvailableTensors, TensorRule, TensorUse};
