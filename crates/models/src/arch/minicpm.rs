//! MiniCPM 1 and 2 (`minicpm`): llama with multipliers for embeddings and residuals, and a divisor
//! for logits.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::decoder::{self, PRE_NORMS};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, Metadata, ModelError, Rules, Scales, TensorRule};

/// Reads and checks the hyperparameters.
///
/// # Errors
/// A key is missing or has a value that cannot be used.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "minicpm").with_long_rope();
    keys.refuse_experts()?;
    let mut numbers = Hyperparams::read(&keys, RopePairs::Adjacent, NormKind::Rms)?;
    numbers.scales = Scales {
        embedding: keys.factor("embedding_scale")?.unwrap_or(12.0),
        residual: keys.factor("residual_scale")?.unwrap_or(1.4 / (numbers.n_layers as f32).sqrt()),
        logits: keys.factor("logit_scale")?.map_or(256.0 / numbers.hidden_size as f32, f32::recip),
        logit_softcap: None,
    };
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
        .layers(|layer| layer.norm("attn_norm").attention().norm("ffn_norm").gated_mlp())
}

/// Builds the body and the head graph.
pub fn graph(hyperparams: &Hyperparams, available: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, available, |scope, x| {
        decoder::gated_layer(scope, x, PRE_NORMS, Activation::Silu)
    })
}
