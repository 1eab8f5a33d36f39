//! Phi 3, 3.5 and 4 (`phi3`): pre-norm layers; Q, K and V are one tensor, gate and up another.
//!
//! Long-context models have two lists of divisors of the RoPE frequencies: one for contexts up to
//! the original one, one for longer contexts. [`ModelOptions::n_ctx`](crate::ModelOptions::n_ctx)
//! chooses. (Ding et al., "LongRoPE".)

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::decoder::{self, PRE_NORMS};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, LayerSet, Metadata, ModelError, Rules, TensorRule};

/// Reads and checks the hyperparameters.
///
/// # Errors
/// A key is missing or has a value that cannot be used.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "phi3").with_long_rope();
    keys.refuse_experts()?;
    let mut numbers = Hyperparams::read(&keys, RopePairs::Halves, NormKind::Rms)?;
    numbers.attention.window = keys.window(&numbers, None, LayerSet::All)?;
    Ok(numbers)
}

/// Tensors of a file, with their shapes.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    let factors = |name: &str| {
        let rule = TensorRule::constant(name, hyperparams.rope.dims / 2);
        if hyperparams.rope.long { rule } else { rule.optional() }
    };
    Rules::model(hyperparams)
        .with(factors("rope_factors_long.weight"))
        .with(factors("rope_factors_short.weight"))
        .layers(|layer| layer.norm("attn_norm").fused_attention().norm("ffn_norm").fused_mlp())
}

/// Builds the body and the head graph.
pub fn graph(hyperparams: &Hyperparams, available: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, available, |scope, x| {
        decoder::gated_layer(scope, x, PRE_NORMS, Activation::Silu)
    })
}
