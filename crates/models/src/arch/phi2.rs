//! phi2: attention and feed-forward part side by side on one layer norm, part of each head rotated, biases everywhere. Phi 1
//! to 2.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::{decoder, mlp};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, Metadata, ModelError, Rules, TensorRule};

/// Reads and checks the metadata.
///
/// # Errors
/// A key is missing or its value useless.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "phi2");
    keys.refuse_experts()?;
    Hyperparams::read(&keys, RopePairs::Halves, NormKind::Layer)
}

/// The tensors.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    Rules::model(hyperparams).layers(|layer| layer.norm("attn_norm").any_attention().plain_mlp())
}

/// The model_graph.
pub fn graph(hyperparams: &Hyperparams, present: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, present, |scope, x| {
        decoder::parallel_layer(scope, x, ["attn_norm"; 2], |scope, x| {
            mlp::plain(scope, x, Activation::GeluTanh)
        })
    })
}
