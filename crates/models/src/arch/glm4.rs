//! glm4: norms around each part, part of each head rotated, gate and up in one tensor. GLM-4-0414 and GLM-Z1.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::decoder::{self, SANDWICH_NORMS};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, Metadata, ModelError, Rules, TensorRule};

/// Reads and checks the metadata.
///
/// # Errors
/// A key is missing or its value useless.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "glm4");
    keys.refuse_experts()?;
    Hyperparams::read(&keys, RopePairs::Adjacent, NormKind::Rms)
}

/// The tensors.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    Rules::model(hyperparams).layers(|layer| {
        let layer = layer.norm("attn_norm").attention().norm("post_attention_norm");
        layer.norm("ffn_norm").fused_mlp().norm("post_ffw_norm")
    })
}

/// The model_graph.
pub fn graph(hyperparams: &Hyperparams, present: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, present, |scope, x| {
        decoder::gated_layer(scope, x, SANDWICH_NORMS, Activation::Silu)
    })
}
