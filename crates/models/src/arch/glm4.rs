//! GLM-4-0414 and GLM-Z1 (`glm4`): norms before and after attention and MLP, RoPE on a part of each
//! head, gate and up in one tensor.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::decoder::{self, SANDWICH_NORMS};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, Metadata, ModelError, Rules, TensorRule};

/// Reads and checks the hyperparameters.
///
/// # Errors
/// A key is missing or has a value that cannot be used.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "glm4");
    keys.refuse_experts()?;
    Hyperparams::read(&keys, RopePairs::Adjacent, NormKind::Rms)
}

/// Tensors of a file, with their shapes.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    Rules::model(hyperparams).layers(|layer| {
        let layer = layer.norm("attn_norm").attention().norm("post_attention_norm");
        layer.norm("ffn_norm").fused_mlp().norm("post_ffw_norm")
    })
}

/// Builds the body and the head graph.
pub fn graph(hyperparams: &Hyperparams, available: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, available, |scope, x| {
        decoder::gated_layer(scope, x, SANDWICH_NORMS, Activation::Silu)
    })
}
