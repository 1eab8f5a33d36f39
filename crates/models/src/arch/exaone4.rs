//! EXAONE 4 (`exaone4`): norms after attention and MLP instead of before them, and a norm per head
//! of Q and K. The 32B model has sliding-window attention in three of four layers; only those use
//! RoPE.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::decoder::{self, POST_NORMS};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, LayerSet, Metadata, ModelError, Rules, TensorRule};

/// Layers of the 32B model, which has a window though old files do not say so.
const LAYERS_32B: u32 = 64;

/// Reads and checks the hyperparameters.
///
/// # Errors
/// A key is missing or has a value that cannot be used.
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

/// Tensors of a file, with their shapes.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    Rules::model(hyperparams)
        .with(TensorRule::constant("rope_freqs.weight", hyperparams.rope.dims / 2).optional())
        .layers(|layer| {
            let layer = layer.attention().head_norms().norm("post_attention_norm");
            layer.gated_mlp().norm("post_ffw_norm")
        })
}

/// Builds the body and the head graph.
pub fn graph(hyperparams: &Hyperparams, available: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, available, |scope, x| {
        decoder::gated_layer(scope, x, POST_NORMS, Activation::Silu)
    })
}
