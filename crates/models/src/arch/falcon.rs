//! Falcon (`falcon`): attention and an MLP without gate (GELU) run in parallel; Q, K and V are one
//! tensor. Larger models have one norm for each of the two: attention's is then `attn_norm_2`.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::{decoder, mlp};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, Metadata, ModelError, Rules, TensorRule};

/// Reads and checks the hyperparameters.
///
/// # Errors
/// A key is missing or has a value that cannot be used.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "falcon");
    keys.refuse_experts()?;
    Hyperparams::read(&keys, RopePairs::Halves, NormKind::Layer)
}

/// Tensors of a file, with their shapes.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    let biases = ["attn_norm_2.weight", "attn_norm_2.bias"];
    Rules::model(hyperparams).layers(|layer| {
        let layer = layer.norm("attn_norm").norm("attn_norm_2");
        let layer = biases.iter().fold(layer, |layer, local| layer.optional(local));
        layer.fused_attention().plain_mlp()
    })
}

/// Builds the body and the head graph.
pub fn graph(hyperparams: &Hyperparams, available: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, available, |scope, x| {
        let own = scope.optional("attn_norm_2.weight").is_some();
        let attention_norm = if own { "attn_norm_2" } else { "attn_norm" };
        decoder::parallel_layer(scope, x, [attention_norm, "attn_norm"], |scope, x| {
            mlp::plain(scope, x, Activation::GeluTanh)
        })
    })
}
