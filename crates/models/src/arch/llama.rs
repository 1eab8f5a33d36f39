//! llama: pre-norm layers, grouped queries, gated SiLU. Llama 1 to 3, Mistral, TinyLlama, SmolLM2 and many more.
//!
//! Rows of Q and K in GGUF files are permuted so that neighbours form a rotated pair. Llama 3.1 and later divide the
//! frequencies by `rope_freqs.weight`. Some members have biases; some see the latest positions only, in every layer.

use minfer_graph::{Activation, NormKind, Program, RopePairs};

use crate::blocks::decoder::{self, PRE_NORMS};
use crate::hyperparams::Keys;
use crate::{Hyperparams, LayerSet, Metadata, ModelError, Present, Rules, TensorRule};

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

/// The program.
pub fn graph(hyperparams: &Hyperparams, present: &Present) -> Program {
    decoder::program(hyperparams, present, |scope, x| {
        decoder::gated_layer(scope, x, PRE_NORMS, Activation::Silu)
    })
}
