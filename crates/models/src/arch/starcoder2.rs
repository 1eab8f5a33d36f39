//! starcoder2: layer norms, grouped queries, biases everywhere, GELU without a gate.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::{
    decoder::{self, PRE_NORMS},
    mlp,
};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, Metadata, ModelError, Rules, TensorRule};

/// Reads and checks the metadata.
///
/// # Errors
/// A key is missing or its value useless.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "starcoder2");
    keys.refuse_experts()?;
    Hyperparams::read(&keys, RopePairs::Halves, NormKind::Layer)
}

/// The tensors.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    Rules::model(hyperparams).layers(|layer| layer.norm("attn_norm").attention().norm("ffn_norm").plain_mlp())
}

/// The model_graph.
pub fn graph(hyperparams: &Hyperparams, present: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, present, |scope, x| {
        decoder::layer(scope, x, PRE_NORMS, |scope, x| mlp::plain(scope, x, Activation::GeluTanh))
    })
}
