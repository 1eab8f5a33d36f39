//! Command R7B and Command A (`cohere2`): command-r with sliding-window attention in three of four
//! layers. Layers with a window use RoPE; the fourth has no positions (NoPE).

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::{decoder, mlp};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, LayerSet, Metadata, ModelError, Rules, TensorRule};

/// Reads and checks the hyperparameters.
///
/// # Errors
/// A key is missing or has a value that cannot be used.
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

/// Tensors of a file, with their shapes.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    Rules::model(hyperparams).layers(|layer| layer.norm("attn_norm").attention().gated_mlp())
}

/// Builds the body and the head graph.
pub fn graph(hyperparams: &Hyperparams, available: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, available, |scope, x| {
        decoder::parallel_layer(scope, x, ["attn_norm"; 2], |scope, x| mlp::gated(scope, x, Activation::Silu))
    })
}
