//! qwen2: pre-norm layers, grouped queries, gated SiLU, biases on q, k and v. Qwen 2 and 2.5, Qwen2.5-Coder and others.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::decoder::{self, PRE_NORMS};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, LayerSet, Metadata, ModelError, Rules, TensorRule};

/// Reads and checks the metadata.
///
/// # Errors
/// A key is missing or its value useless.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "qwen2");
    keys.refuse_experts()?;
    let mut numbers = Hyperparams::read(&keys, RopePairs::Halves, NormKind::Rms)?;
    numbers.attention.window = keys.window(&numbers, None, LayerSet::All)?;
    Ok(numbers)
}

/// The tensors.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    Rules::model(hyperparams).layers(|layer| {
        let layer = layer.norm("attn_norm").attention().norm("ffn_norm").gated_mlp();
        ["attn_q.bias", "attn_k.bias", "attn_v.bias"]
            .into_iter()
            .fold(layer, |layer, bias| layer.required(bias))
    })
}

/// The model_graph.
pub fn graph(hyperparams: &Hyperparams, present: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, present, |scope, x| {
        decoder::gated_layer(scope, x, PRE_NORMS, Activation::Silu)
    })
}
