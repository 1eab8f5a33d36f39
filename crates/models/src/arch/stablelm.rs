//! stablelm: layer norms, part of each head rotated, gated SiLU. A file without a norm before the feed-forward part (the 12B
//! model's) has both parts side by side, and norms of the heads of Q and K.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::{
    decoder::{self, PRE_NORMS},
    mlp,
};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, Metadata, ModelError, Rules, TensorRule};

/// Reads and checks the metadata.
///
/// # Errors
/// A key is missing or its value useless.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "stablelm");
    keys.refuse_experts()?;
    let mut numbers = Hyperparams::read(&keys, RopePairs::Halves, NormKind::Layer)?;
    numbers.attention.head_factors = true;
    Ok(numbers)
}

/// The tensors.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    Rules::model(hyperparams).layers(|layer| {
        let layer = layer.norm("attn_norm").attention().norms_of_each_head();
        layer.norm("ffn_norm").optional("ffn_norm.weight").gated_mlp()
    })
}

/// The model_graph.
pub fn graph(hyperparams: &Hyperparams, present: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, present, |scope, x| {
        if scope.optional("ffn_norm.weight").is_some() {
            return decoder::gated_layer(scope, x, PRE_NORMS, Activation::Silu);
        }
        decoder::parallel_layer(scope, x, ["attn_norm"; 2], |scope, x| mlp::gated(scope, x, Activation::Silu))
    })
}
