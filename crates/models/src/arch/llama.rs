//! llama: pre-norm layers, grouped queries, gated SiLU. Llama 1 to 3, Mistral, TinyLlama, SmolLM2 and many more.
//!
//! Rows of Q and K in GGUF files are permuted so that neighbours form a rotated pair. Llama 3.1 and later divide the
//! frequencies by `rope_freqs.weight`. Some members have biases.

use minfer_graph::{Activation, Program, ProgramBuilder, RopePairs};

use crate::blocks::{Scope, attention, head, mlp, norm, rope};
use crate::hyperparams::Keys;
use crate::{Hyperparams, Metadata, ModelError, Present, TensorRule};

/// Reads and checks the metadata.
///
/// # Errors
/// A key is missing or its value useless, or the model has experts or windows.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys { metadata, architecture: "llama" };
    keys.refuse_count("expert_count", "a mixture of experts")?;
    keys.refuse_bidirectional()?;
    let hyperparams = Hyperparams::read(metadata, "llama", RopePairs::Adjacent)?;
    keys.refuse_window(hyperparams.context_length)?;
    Ok(hyperparams)
}

/// The tensors.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    let Hyperparams { n_layers, width, vocab, .. } = *hyperparams;
    let mut rules = vec![
        TensorRule::constant("rope_freqs.weight", hyperparams.rope.dims / 2).optional(),
        TensorRule::matrix("token_embd.weight", vocab, width),
        TensorRule::vector("output_norm.weight", width),
        TensorRule::matrix("output.weight", vocab, width).optional(),
    ];
    rules.extend((0..n_layers).flat_map(|layer| layer_tensors(hyperparams, layer)));
    rules
}

/// The program: embed, layers, head.
pub fn graph(hyperparams: &Hyperparams, present: &Present) -> Program {
    let rope = rope::spec(&hyperparams.rope);
    let mut program = ProgramBuilder::new();
    let mut body = program.body();
    let mut x = Scope::model(&mut body, present).embed();
    for layer in 0..hyperparams.n_layers {
        let mut scope = Scope::layer(&mut body, present, layer);
        let normed = norm::rms_norm(&mut scope, x, "attn_norm", hyperparams.norm_eps);
        let attended = attention::causal(&mut scope, hyperparams, &rope, layer, normed);
        x = scope.graph.add(x, attended);
        let normed = norm::rms_norm(&mut scope, x, "ffn_norm", hyperparams.norm_eps);
        let fed = mlp::gated(&mut scope, normed, Activation::Silu);
        x = scope.graph.add(x, fed);
    }
    let body = body.finish(&[x]);
    let head = head::logits(&mut program, present, hyperparams);
    program.finish(body, head)
}

fn layer_tensors(hyperparams: &Hyperparams, layer: u32) -> Vec<TensorRule> {
    let name = |local: &str| format!("blk.{layer}.{local}");
    let (width, inner) = (hyperparams.width, hyperparams.feed_forward);
    let linear = |local: &str, rows: u32, columns: u32| {
        [
            TensorRule::matrix(name(&format!("{local}.weight")), rows, columns),
            TensorRule::vector(name(&format!("{local}.bias")), rows).optional(),
        ]
    };
    let norm = |local: &str| TensorRule::vector(name(&format!("{local}.weight")), width);
    let mut rules = vec![norm("attn_norm"), norm("ffn_norm")];
    rules.extend(linear("attn_q", hyperparams.q_width(), width));
    rules.extend(linear("attn_k", hyperparams.k_width(), width));
    rules.extend(linear("attn_v", hyperparams.v_width(), width));
    rules.extend(linear("attn_output", width, hyperparams.attention_width()));
    rules.extend(linear("ffn_gate", inner, width));
    rules.extend(linear("ffn_up", inner, width));
    rules.extend(linear("ffn_down", width, inner));
    rules
}
