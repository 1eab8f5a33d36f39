//! gemma2: gemma with norms after each part too, soft caps of scores and logits, and a window in every other layer.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::decoder::{self, SANDWICH_NORMS};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, LayerSet, Metadata, ModelError, Rules, TensorRule};

/// Layers of the 27B model, whose scores are scaled by width / heads instead of the head dim.
const LAYERS_27B: u32 = 46;

/// Reads and checks the metadata.
///
/// # Errors
/// A key is missing or its value useless.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "gemma2");
    keys.refuse_experts()?;
    let mut numbers = Hyperparams::read(&keys, RopePairs::Halves, NormKind::Rms)?;
    numbers.scales.embedding = (numbers.width as f32).sqrt();
    numbers.scales.logit_softcap = Some(keys.factor("final_logit_softcapping")?.unwrap_or(30.0));
    numbers.attention.softcap = Some(keys.factor("attn_logit_softcapping")?.unwrap_or(50.0));
    numbers.attention.window = keys.window(&numbers, Some(4096), LayerSet::AllButEvery(2))?;
    numbers.scale_by_width_per_head(LAYERS_27B);
    Ok(numbers)
}

/// The tensors.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    Rules::model(hyperparams).layers(|layer| {
        let layer = layer.norm("attn_norm").attention().norm("post_attention_norm");
        layer.norm("ffn_norm").gated_mlp().norm("post_ffw_norm")
    })
}

/// The model_graph.
pub fn graph(hyperparams: &Hyperparams, present: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, present, |scope, x| {
        decoder::gated_layer(scope, x, SANDWICH_NORMS, Activation::GeluHalf)
    })
}
