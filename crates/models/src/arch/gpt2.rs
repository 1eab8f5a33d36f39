//! gpt2: layer norms, a learned embedding of positions instead of rotation, Q, K and V in one tensor, biases everywhere.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::{
    decoder::{self, PRE_NORMS},
    mlp,
};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, LayerSet, Metadata, ModelError, Rules, TensorRule};

/// Reads and checks the metadata.
///
/// # Errors
/// A key is missing or its value useless.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "gpt2");
    keys.refuse_experts()?;
    let mut numbers = Hyperparams::read(&keys, RopePairs::Halves, NormKind::Layer)?;
    numbers.attention.rotated = LayerSet::None;
    Ok(numbers)
}

/// The tensors.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    let positions = hyperparams.context_length;
    Rules::model(hyperparams)
        .with(TensorRule::matrix("position_embd.weight", positions, hyperparams.width))
        .layers(|layer| layer.norm("attn_norm").fused_attention().norm("ffn_norm").plain_mlp())
}

/// The model_graph.
pub fn graph(hyperparams: &Hyperparams, present: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, present, |scope, x| {
        decoder::layer(scope, x, PRE_NORMS, |scope, x| mlp::plain(scope, x, Activation::GeluTanh))
    })
}
