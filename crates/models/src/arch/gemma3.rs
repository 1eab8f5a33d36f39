//! Gemma 3 (`gemma3`): Gemma 2 without soft caps on scores, with a norm per head of Q and K. Five
//! of six layers have sliding-window attention, with a RoPE base of 10000 of their own.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::decoder::{self, SANDWICH_NORMS};
use crate::hyperparams::{Keys, RopeScaling};
use crate::{
    AvailableTensors, Hyperparams, LayerSet, Metadata, ModelError, RopeHyperparams, Rules, TensorRule,
};

/// Layers of the 27B model, whose scores are scaled by hidden_size / heads instead of the head dim.
const LAYERS_27B: u32 = 62;

/// Reads and checks the hyperparameters.
///
/// # Errors
/// A key is missing or has a value that cannot be used.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "gemma3");
    keys.refuse_experts()?;
    let mut numbers = Hyperparams::read(&keys, RopePairs::Halves, NormKind::Rms)?;
    numbers.scales.embedding = (numbers.hidden_size as f32).sqrt();
    numbers.scales.logit_softcap = keys.factor("final_logit_softcapping")?;
    numbers.attention.softcap = keys.factor("attn_logit_softcapping")?;
    numbers.attention.window = keys.window(&numbers, None, LayerSet::AllButEvery(6))?;
    let base = keys.rope_base("rope.freq_base_swa", 10_000.0)?;
    numbers.attention.window_rope =
        Some(RopeHyperparams { base, scaling: RopeScaling::None, ..numbers.rope.clone() });
    numbers.scale_by_hidden_size_per_head(LAYERS_27B);
    Ok(numbers)
}

/// Tensors of a file, with their shapes.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    Rules::model(hyperparams).layers(|layer| {
        let layer = layer.norm("attn_norm").attention().head_norms().norm("post_attention_norm");
        layer.norm("ffn_norm").gated_mlp().norm("post_ffw_norm")
    })
}

/// Builds the body and the head graph.
pub fn graph(hyperparams: &Hyperparams, available: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, available, |scope, x| {
        decoder::gated_layer(scope, x, SANDWICH_NORMS, Activation::GeluHalf)
    })
}
