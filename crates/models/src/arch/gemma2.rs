//! Gemma 2 (`gemma2`): Gemma with norms also after attention and MLP, soft caps on attention scores
//! and logits, and sliding-window attention in every other layer.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::decoder::{self, SANDWICH_NORMS};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, LayerSet, Metadata, ModelError, Rules, TensorRule};

/// Layers of the 27B model, whose scores are scaled by hidden_size / heads instead of the head dim.
const LAYERS_27B: u32 = 46;

/// Reads and checks the hyperparameters.
///
/// # Errors
/// A key is missing or has a value that cannot be used.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "gemma2");
    keys.refuse_experts()?;
    let mut numbers = Hyperparams::read(&keys, RopePairs::Halves, NormKind::Rms)?;
    numbers.scales.embedding = (numbers.hidden_size as f32).sqrt();
    numbers.scales.logit_softcap = Some(keys.factor("final_logit_softcapping")?.unwrap_or(30.0));
    numbers.attention.softcap = Some(keys.factor("attn_logit_softcapping")?.unwrap_or(50.0));
    numbers.attention.window = keys.window(&numbers, Some(4096), LayerSet::AllButEvery(2))?;
    numbers.scale_by_hidden_size_per_head(LAYERS_27B);
    Ok(numbers)
}

/// Tensors of a file, with their shapes.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    Rules::model(hyperparams).layers(|layer| {
        let layer = layer.norm("attn_norm").attention().norm("post_attention_norm");
        layer.norm("ffn_norm").gated_mlp().norm("post_ffw_norm")
    })
}

/// Builds the body and the head graph.
pub fn graph(hyperparams: &Hyperparams, available: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, available, |scope, x| {
        decoder::gated_layer(scope, x, SANDWICH_NORMS, Activation::GeluHalf)
    })
}
