//! Qwen 2, Qwen 2.5 and Qwen2.5-Coder (`qwen2`): llama with biases of Q, K and V and another order
//! of rotated pairs.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::decoder::{self, PRE_NORMS};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, LayerSet, Metadata, ModelError, Rules, TensorRule};

/// Reads and checks the hyperparameters.
///
/// # Errors
/// A key is missing or has a value that cannot be used.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "qwen2");
    keys.refuse_experts()?;
    let mut numbers = Hyperparams::read(&keys, RopePairs::Halves, NormKind::Rms)?;
    numbers.attention.window = keys.window(&numbers, None, LayerSet::All)?;
    Ok(numbers)
}

/// Tensors of a file, with their shapes.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    Rules::model(hyperparams).layers(|layer| {
        let layer = layer.norm("attn_norm").attention().norm("ffn_norm").gated_mlp();
        ["attn_q.bias", "attn_k.bias", "attn_v.bias"]
            .into_iter()
            .fold(layer, |layer, bias| layer.required(bias))
    })
}

/// Builds the body and the head graph.
pub fn graph(hyperparams: &Hyperparams, available: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, available, |scope, x| {
        decoder::gated_layer(scope, x, PRE_NORMS, Activation::Silu)
    })
}
