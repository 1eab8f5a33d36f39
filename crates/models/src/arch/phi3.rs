//! phi3: pre-norm layers with Q, K and V in one tensor and gate and up in another. Phi 3, 3.5 and 4.
//!
//! Long-context members divide the frequencies by one set of factors up to the original context and by another beyond it, which
//! the context that a model is run with decides. (Ding et al., "LongRoPE".)

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::decoder::{self, PRE_NORMS};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, LayerSet, Metadata, ModelError, Rules, TensorRule};

/// Reads and checks the metadata.
///
/// # Errors
/// A key is missing or its value useless.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "phi3").with_long_rope();
    keys.refuse_experts()?;
    let mut numbers = Hyperparams::read(&keys, RopePairs::Halves, NormKind::Rms)?;
    numbers.attention.window = keys.window(&numbers, None, LayerSet::All)?;
    Ok(numbers)
}

/// The tensors.
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

/// The model_graph.
pub fn graph(hyperparams: &Hyperparams, present: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, present, |scope, x| {
        decoder::gated_layer(scope, x, PRE_NORMS, Activation::Silu)
    })
}
