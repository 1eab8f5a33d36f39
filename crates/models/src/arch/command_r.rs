//! command-r: attention and gated feed-forward part side by side on one layer norm, a factor on logits. Command R and R+, Aya.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::{decoder, mlp};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, Metadata, ModelError, Rules, TensorRule};

/// Reads and checks the metadata.
///
/// # Errors
/// A key is missing or its value useless.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "command-r");
    keys.refuse_experts()?;
    let mut numbers = Hyperparams::read(&keys, RopePairs::Adjacent, NormKind::Layer)?;
    numbers.attention.head_factors = true;
    numbers.scales.logits = keys.factor("logit_scale")?.unwrap_or(1.0);
    Ok(numbers)
}

/// The tensors.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    Rules::model(hyperparams)
        .layers(|layer| layer.norm("attn_norm").attention().norms_of_each_head().gated_mlp())
}

/// The model_graph.
pub fn graph(hyperparams: &Hyperparams, present: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, present, |scope, x| {
        decoder::parallel_layer(scope, x, ["attn_norm"; 2], |scope, x| mlp::gated(scope, x, Activation::Silu))
    })
}
