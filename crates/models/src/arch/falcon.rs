//! falcon: attention and feed-forward part side by side, GELU without a gate, Q, K and V in one tensor. Larger members have a norm
//! for each part: `attn_norm_2` is then attention's.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::{decoder, mlp};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, Metadata, ModelError, Rules, TensorRule};

/// Reads and checks the metadata.
///
/// # Errors
/// A key is missing or its value useless.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "falcon");
    keys.refuse_experts()?;
    Hyperparams::read(&keys, RopePairs::Halves, NormKind::Layer)
}

/// The tensors.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    let biases = ["attn_norm_2.weight", "attn_norm_2.bias"];
    Rules::model(hyperparams).layers(|layer| {
        let layer = layer.norm("attn_norm").norm("attn_norm_2");
        let layer = biases.iter().fold(layer, |layer, local| layer.optional(local));
        layer.fused_attention().plain_mlp()
    })
}

/// The model_graph.
pub fn graph(hyperparams: &Hyperparams, present: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, present, |scope, x| {
        let own = scope.optional("attn_norm_2.weight").is_some();
        let attention_norm = if own { "attn_norm_2" } else { "attn_norm" };
        decoder::parallel_layer(scope, x, [attention_norm, "attn_norm"], |scope, x| {
            mlp::plain(scope, x, Activation::GeluTanh)
        })
    })
}
