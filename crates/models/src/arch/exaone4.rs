//! exaone4: norms after each part and none before, norms of the heads of Q and K. The 32B model has a window in three of four
//! layers; those rotate, the fourth does not.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::decoder::{self, POST_NORMS};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, LayerSet, Metadata, ModelError, Rules, TensorRule};

/// Layers of the 32B model, which has a window though old files do not say so.
const LAYERS_32B: u32 = 64;

/// Reads and checks the metadata.
///
/// # Errors
/// A key is missing or its value useless.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "exaone4");
    keys.refuse_experts()?;
    let mut numbers = Hyperparams::read(&keys, RopePairs::Halves, NormKind::Rms)?;
    let default = (numbers.n_layers == LAYERS_32B).then_some(4096);
    numbers.attention.window = keys.window(&numbers, default, LayerSet::AllButEvery(4))?;
    if let Some(window) = &numbers.attention.window {
        numbers.attention.rotated = window.layers.clone();
    }
    Ok(numbers)
}

/// The tensors.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    Rules::model(hyperparams)
        .with(TensorRule::constant("rope_freqs.weight", hyperparams.rope.dims / 2).optional())
        .layers(|layer| {
            let layer = layer.attention().head_norms().norm("post_attention_norm");
            layer.gated_mlp().norm("post_ffw_norm")
        })
}

/// The model_graph.
pub fn graph(hyperparams: &Hyperparams, present: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, present, |scope, x| {
        decoder::gated_layer(scope, x, POST_NORMS, Activation::Silu)
    })
}
