//! llama: pre-norm layers, grouped queries, gated SiLU. Llama 1 to 3, Mistral, TinyLlama, SmolLM2 and many more.
//!
//! Rows of Q and K in GGUF files are permuted so that neighbours form a rotated pair. Llama 3.1 and later divide the
//! frequencies by `rope_freqs.weight`. Some members have biases; some see the latest positions only, in every layer.

use minfer_graph::{Activation, ModelGraph, NormKind, RopePairs};

use crate::blocks::decoder::{self, PRE_NORMS};
use crate::hyperparams::Keys;
use crate::{AvailableTensors, Hyperparams, LayerSet, Metadata, ModelError, Rules, TensorRule};

/// Reads and checks the metadata.
///
/// # Errors
/// A key is missing or its value useless, or the model has experts.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys::of(metadata, "llama");
    keys.refuse_experts()?;
    let mut numbers = Hyperparams::read(&keys, RopePairs::Adjacent, NormKind::Rms)?;
    numbers.attention.window = keys.window(&numbers, None, LayerSet::All)?;
    Ok(numbers)
}

/// The tensors.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    Rules::model(hyperparams)
        .with(TensorRule::constant("rope_freqs.weight", hyperparams.rope.dims / 2).optional())
        .layers(|layer| layer.norm("attn_norm").attention().norm("ffn_norm").gated_mlp())
}

/// The model_graph.
pub fn graph(hyperparams: &Hyperparams, present: &AvailableTensors) -> ModelGraph {
    decoder::model_graph(hyperparams, present, |scope, x| {
        decoder::gated_layer(scope, x, PRE_NORMS, Activation::Silu)
    })
}
