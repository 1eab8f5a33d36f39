//! command-r: attention and gated feed-forward part side by side on one layer norm, a factor on logits. Command R and R+, Aya.

use minfer_graph::{Activation, NormKind, Program, RopePairs};

use crate::blocks::{decoder, mlp};
use crate::hyperparams::Keys;
use crate::{Hyperparams, Metadata, ModelError, Present, Rules, TensorRule};

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

/// The program.
pub fn graph(hyperparams: &Hyperparams, present: &Present) -> Program {
    decoder::program(hyperparams, present, |scope, x| {
        decoder::parallel_layer(scope, x, ["attn_norm"; 2], |scope, x| mlp::gated(scope, x, Activation::Silu))
    })
}
