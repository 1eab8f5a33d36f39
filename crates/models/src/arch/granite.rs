//! Granite (`granite`): llama with multipliers for embeddings, attention scores and residuals, and
//! a divisor for logits.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::decoder::{self, PRE_NORMS};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, LayerSet, Metadata, ModelError, Rules, Scales, TensorRule};

/// Reads and checks the hyperparameters.
///
/// # Errors
/// A key is missing or has a value that cannot be used, or the model has experts.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "granite");
    keys.refuse_experts()?;
    let mut numbers = Hyperparams::read(&keys, RopePairs::Adjacent, NormKind::Rms)?;
    numbers.scales = Scales {
        embedding: keys.factor("embedding_scale")?.unwrap_or(1.0),
        residual: keys.factor("residual_scale")?.unwrap_or(1.0),
        logits: keys.factor("logit_scale")?.map_or(1.0, f32::recip),
        logit_softcap: None,
    };
    if let Some(scale) = keys.factor("attention.scale")? {
        numbers.attention.scale = scale;
    }
    // Files use this key to say that no layer rotates.
    if !keys.flag("rope.scaling.finetuned", true)? {
        numbers.attention.rotated = LayerSet::None;
    }
    Ok(numbers)
}

/// Tensors of a file, with their shapes.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    Rules::model(hyperparams)
        .with(TensorRule::constant("rope_freqs.weight", hyperparams.rope.dims / 2).optional())
        .layers(|layer| layer.norm("attn_norm").attention().norm("ffn_norm").gated_mlp())
}

/// Builds the body and the head graph.
pub fn graph(hyperparams: &Hyperparams, available: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, available, |scope, x| {
        decoder::gated_layer(scope, x, PRE_NORMS, Activation::Silu)
    })
}
