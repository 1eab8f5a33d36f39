//! GPT-2 (`gpt2`): LayerNorm, learned position embeddings instead of RoPE, Q, K and V in one
//! tensor, biases everywhere, an MLP without gate.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::{
    decoder::{self, PRE_NORMS},
    mlp,
};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, LayerSet, Metadata, ModelError, Rules, TensorRule};

/// Reads and checks the hyperparameters.
///
/// # Errors
/// A key is missing or has a value that cannot be used.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "gpt2");
    keys.refuse_experts()?;
    let mut numbers = Hyperparams::read(&keys, RopePairs::Halves, NormKind::Layer)?;
    numbers.attention.rotated = LayerSet::None;
    Ok(numbers)
}

/// Tensors of a file, with their shapes.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    let positions = hyperparams.context_length;
    Rules::model(hyperparams)
        .with(TensorRule::matrix("position_embd.weight", positions, hyperparams.hidden_size))
        .layers(|layer| layer.norm("attn_norm").fused_attention().norm("ffn_norm").plain_mlp())
}

/// Builds the body and the head graph.
pub fn graph(hyperparams: &Hyperparams, available: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, available, |scope, x| {
        decoder::layer(scope, x, PRE_NORMS, |scope, x| mlp::plain(scope, x, Activation::GeluTanh))
    })
}
