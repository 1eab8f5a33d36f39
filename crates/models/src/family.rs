//! The table of model families.

use minfer_graph::ModelGraph;

use crate::arch;
use crate::nearest::nearest;
use crate::{AvailableTensors, Hyperparams, Metadata, ModelError, TensorRule};

/// A model family: what `general.architecture` names, and its three functions.
#[derive(Debug)]
pub struct Family {
    /// The value of `general.architecture`, also the prefix of the family's metadata keys.
    pub architecture: &'static str,
    /// Reads and checks the metadata.
    pub hyperparameters: fn(&Metadata<'_>) -> Result<Hyperparams, ModelError>,
    /// Names, shapes and use of the tensors, in file order.
    pub tensors: fn(&Hyperparams) -> Vec<TensorRule>,
    /// The model graph over the tensors that a file has.
    pub graph: fn(&Hyperparams, &AvailableTensors) -> ModelGraph,
}

/// A family's row: its name and the module of its functions are the same word, where the name is
/// one.
macro_rules! family {
    ($name:ident) => {
        family!($name, stringify!($name))
    };
    ($name:ident, $architecture:expr) => {
        Family {
            architecture: $architecture,
            hyperparameters: arch::$name::hyperparameters,
            tensors: arch::$name::tensors,
            graph: arch::$name::graph,
        }
    };
}

/// Every family that this build reads.
pub const FAMILIES: &[Family] = &[
    family!(llama),
    family!(qwen2),
    family!(qwen3),
    family!(gemma),
    family!(gemma2),
    family!(gemma3),
    family!(phi3),
    family!(granite),
    family!(olmo2),
    family!(smollm3),
    family!(glm4),
    family!(gpt2),
    family!(phi2),
    family!(starcoder2),
    family!(stablelm),
    family!(falcon),
    family!(command_r, "command-r"),
    family!(cohere2),
    family!(internlm2),
    family!(minicpm),
    family!(exaone4),
];

impl Family {
    /// The family of an architecture.
    ///
    /// # Errors
    /// No family has this name; the error lists those that are read, and the nearest one.
    pub fn of(architecture: &str) -> Result<&'static Family, ModelError> {
        FAMILIES.iter().find(|family| family.architecture == architecture).ok_or_else(|| {
            let known: Vec<&'static str> = FAMILIES.iter().map(|family| family.architecture).collect();
            ModelError::UnknownArchitecture {
                found: architecture.to_owned(),
                nearest: nearest(architecture, &known),
                known,
            }
        })
    }
}
