//! OLMo 2 and 3 (`olmo2`): norms after attention and MLP instead of before them, and one norm over
//! all heads of Q and one over all heads of K.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::decoder::{self, POST_NORMS};
use crate::hyperparams::{Keys, RopeScaling};
use crate::{
    AvailableTensors, Hyperparams, LayerSet, Metadata, ModelError, RopeHyperparams, Rules, TensorRule,
};

/// Reads and checks the hyperparameters.
///
/// # Errors
/// A key is missing or has a value that cannot be used.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "olmo2");
    keys.refuse_experts()?;
    let mut numbers = Hyperparams::read(&keys, RopePairs::Halves, NormKind::Rms)?;
    numbers.attention.window = keys.window(&numbers, None, LayerSet::AllButEvery(4))?;
    // A stretch of the context is one of the layers that see all of it.
    numbers.attention.window_rope =
        Some(RopeHyperparams { scaling: RopeScaling::None, ..numbers.rope.clone() });
    Ok(numbers)
}

/// Tensors of a file, with their shapes.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    Rules::model(hyperparams).layers(|layer| {
        let layer = layer.attention().row_norms().norm("post_attention_norm");
        layer.gated_mlp().norm("post_ffw_norm")
    })
}

/// Builds the body and the head graph.
pub fn graph(hyperparams: &Hyperparams, available: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, available, |scope, x| {
        decoder::gated_layer(scope, x, POST_NORMS, Activation::Silu)
    })
}
