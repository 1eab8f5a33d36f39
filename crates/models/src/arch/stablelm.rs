//! StableLM (`stablelm`): LayerNorm, RoPE on a part of each head, gated SiLU MLP. A file without a
//! norm before the MLP (the 12B model) runs attention and MLP in parallel and has a norm per head
//! of Q and K.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::{
    decoder::{self, PRE_NORMS},
    mlp,
};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, Metadata, ModelError, Rules, TensorRule};

/// Reads and checks the hyperparameters.
///
/// # Errors
/// A key is missing or has a value that cannot be used.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "stablelm");
    keys.refuse_experts()?;
    let mut numbers = Hyperparams::read(&keys, RopePairs::Halves, NormKind::Layer)?;
    numbers.attention.head_norm_weights = true;
    Ok(numbers)
}

/// Tensors of a file, with their shapes.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    Rules::model(hyperparams).layers(|layer| {
        let layer = layer.norm("attn_norm").attention().norms_of_each_head();
        layer.norm("ffn_norm").optional("ffn_norm.weight").gated_mlp()
    })
}

/// Builds the body and the head graph.
pub fn graph(hyperparams: &Hyperparams, available: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, available, |scope, x| {
        if scope.optional("ffn_norm.weight").is_some() {
            return decoder::gated_layer(scope, x, PRE_NORMS, Activation::Silu);
        }
        decoder::parallel_layer(scope, x, ["attn_norm"; 2], |scope, x| mlp::gated(scope, x, Activation::Silu))
    })
}
