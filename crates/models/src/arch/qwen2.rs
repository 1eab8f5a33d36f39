//! qwen2: pre-norm layers, grouped queries, gated SiLU, biases on q, k and v. Qwen 2 and 2.5, Qwen2.5-Coder and others.

use minfer_graph::{Activation, Program, ProgramBuilder, RopePairs};

use crate::blocks::{Scope, attention, head, mlp, norm, rope};
use crate::hyperparams::Keys;
use crate::{Hyperparams, Metadata, ModelError, Present, TensorRule};

/// Reads and checks the metadata.
///
/// # Errors
/// A key is missing or its value useless, or the model has windows.
pub fn hyperparameters(metadata: &Metadata<'_>) -> Result<Hyperparams, ModelError> {
    let keys = Keys { metadata, architecture: "qwen2" };
    keys.refuse_bidirectional()?;
    let hyperparams = Hyperparams::read(metadata, "qwen2", RopePairs::Halves)?;
    keys.refuse_window(hyperparams.context_length)?;
    Ok(hyperparams)
}

/// The tensors.
pub fn tensors(hyperparams: &Hyperparams) -> Vec<TensorRule> {
    let Hyperparams { n_layers, width, vocab, .. } = *hyperparams;
    let mut rules = vec![
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

fn layer_tensors(hyperparams: &Hyperparams, layer: u32) -> [TensorRule; 12] {
    let name = |local: &str| format!("blk.{layer}.{local}");
    let (width, inner) = (hyperparams.width, hyperparams.feed_forward);
    [
        TensorRule::vector(name("attn_norm.weight"), width),
        TensorRule::matrix(name("attn_q.weight"), hyperparams.q_width(), width),
        TensorRule::vector(name("attn_q.bias"), hyperparams.q_width()),
        TensorRule::matrix(name("attn_k.weight"), hyperparams.k_width(), width),
        TensorRule::vector(name("attn_k.bias"), hyperparams.k_width()),
        TensorRule::matrix(name("attn_v.weight"), hyperparams.v_width(), width),
        TensorRule::vector(name("attn_v.bias"), hyperparams.v_width()),
        TensorRule::matrix(name("attn_output.weight"), width, hyperparams.attention_width()),
        TensorRule::vector(name("ffn_norm.weight"), width),
        TensorRule::matrix(name("ffn_gate.weight"), inner, width),
        TensorRule::matrix(name("ffn_up.weight"), inner, width),
        TensorRule::matrix(name("ffn_down.weight"), width, inner),
    ]
}
