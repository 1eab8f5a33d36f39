//! cohere2: command-r with a window in three of four layers; those rotate, the fourth does not. Command R7B, Command A.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::{decoder, mlp};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, LayerSet, Metadata, ModelError, Rules, TensorRule};

/// Reads and checks the metadata.
///
/// # Errors
/// A key is missing or its value useless.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "cohere2");
    keys.refuse_experts()?;
    let mut numbers = Hyperparams::read(&keys, RopePairs::Adjacent, NormKind::Layer)?;
    numbers.scales.logits = keys.factor("logit_scale")?.unwrap_or(1.0);
    numbers.attention.window = keys.window(&numbers, Some(4096), LayerSet::AllButEvery(4))?;
    numbers.attention.rotated = match &numbers.attention.window {
        Some(window) => window.layers.clone(),
        None => LayerSet::AllButEvery(4),
    };
    Ok(numbers)
}

/// The tensors.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    Rules::model(hyperparams).layers(|layer| layer.norm("attn_norm").attention().gated_mlp())
}

/// The model_graph.
pub fn graph(hyperparams: &Hyperparams, present: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, present, |scope, x| {
        decoder::parallel_layer(scope, x, ["attn_norm"; 2], |scope, x| mlp::gated(scope, x, Activation::Silu))
    })
}
