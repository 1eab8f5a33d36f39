//! gemma3: gemma2 without soft caps of scores, with norms of the heads of Q and K. Of six layers five have a window and the
//! rotation of base 10000, whatever that of the sixth is.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::decoder::{self, SANDWICH_NORMS};
use crate::hyperparams::{Keys, RopeScaling};
use crate::{
    AvailableTensors, Hyperparams, LayerSet, Metadata, ModelError, RopeHyperparams, Rules, TensorRule,
};

/// Layers of the 27B model, whose scores are scaled by width / heads instead of the head dim.
const LAYERS_27B: u32 = 62;

/// Reads and checks the metadata.
///
/// # Errors
/// A key is missing or its value useless.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "gemma3");
    keys.refuse_experts()?;
    let mut numbers = Hyperparams::read(&keys, RopePairs::Halves, NormKind::Rms)?;
    numbers.scales.embedding = (numbers.width as f32).sqrt();
    numbers.scales.logit_softcap = keys.factor("final_logit_softcapping")?;
    numbers.attention.softcap = keys.factor("attn_logit_softcapping")?;
    numbers.attention.window = keys.window(&numbers, None, LayerSet::AllButEvery(6))?;
    let base = keys.rope_base("rope.freq_base_swa", 10_000.0)?;
    numbers.attention.window_rope =
        Some(RopeHyperparams { base, scaling: RopeScaling::None, ..numbers.rope.clone() });
    numbers.scale_by_width_per_head(LAYERS_27B);
    Ok(numbers)
}

/// The tensors.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    Rules::model(hyperparams).layers(|layer| {
        let layer = layer.norm("attn_norm").attention().head_norms().norm("post_attention_norm");
        layer.norm("ffn_norm").gated_mlp().norm("post_ffw_norm")
    })
}

/// The model_graph.
pub fn graph(hyperparams: &Hyperparams, present: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, present, |scope, x| {
        decoder::gated_layer(scope, x, SANDWICH_NORMS, Activation::GeluHalf)
    })
}
