//! phi2: attention and feed-forward part side by side on one layer norm, part of each head rotated, biases everywhere. Phi 1
//! to 2.

use minfer_graph::{Activation, NormKind, Program, RopePairs};

use crate::blocks::{decoder, mlp};
use crate::hyperparams::Keys;
use crate::{Hyperparams, Metadata, ModelError, Present, Rules, TensorRule};

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

/// The program.
pub fn graph(hyperparams: &Hyperparams, present: &Present) -> Program {
    decoder::program(hyperparams, present, |scope, x| {
        decoder::parallel_layer(scope, x, ["attn_norm"; 2], |scope, x| {
            mlp::plain(scope, x, Activation::GeluTanh)
        })
    })
}
