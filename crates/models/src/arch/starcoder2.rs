//! starcoder2: layer norms, grouped queries, biases everywhere, GELU without a gate.

use minfer_graph::{Activation, NormKind, Program, RopePairs};

use crate::blocks::{
    decoder::{self, PRE_NORMS},
    mlp,
};
use crate::hyperparams::Keys;
use crate::{Hyperparams, Metadata, ModelError, Present, Rules, TensorRule};

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

/// The program.
pub fn graph(hyperparams: &Hyperparams, present: &Present) -> Program {
    decoder::program(hyperparams, present, |scope, x| {
        decoder::layer(scope, x, PRE_NORMS, |scope, x| mlp::plain(scope, x, Activation::GeluTanh))
    })
}
