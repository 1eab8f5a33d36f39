//! The decoder: embedding, layers with residual connections, output head.

use minfer_graph::{Activation, ModelGraph, ModelGraphBuilder, ValueId};

use super::{Scope, attention, head, mlp, norm};
use crate::{AvailableTensors, Hyperparams};

/// Builds the model graph: embedding, layers, head. `layer` adds the nodes of one layer.
pub fn model_graph(
    hyperparams: &Hyperparams,
    available: &AvailableTensors,
    layer: impl Fn(&mut Scope<'_, '_>, ValueId) -> ValueId,
) -> ModelGraph {
    let mut model_graph = ModelGraphBuilder::new();
    let mut body = model_graph.body();
    let mut x = embed(&mut Scope::model(&mut body, hyperparams, available));
    for index in 0..hyperparams.n_layers {
        x = layer(&mut Scope::layer(&mut body, hyperparams, available, index), x);
    }
    let body = body.finish(&[x]);
    let head = head::logits(&mut model_graph, available, hyperparams);
    model_graph.finish(body, head)
}

/// The scaled token embedding, plus the learned position embedding if the file has one.
fn embed(scope: &mut Scope<'_, '_>) -> ValueId {
    let table = scope.required("token_embd.weight");
    let rows = scope.graph.embed(table);
    let rows = scope.scaled(rows, scope.hyperparams.scales.embedding);
    match scope.optional("position_embd.weight") {
        Some(table) => {
            let positions = scope.graph.embed_positions(table);
            scope.graph.add(rows, positions)
        }
        None => rows,
    }
}

/// Names of the norms around attention or the MLP.
#[derive(Debug, Clone, Copy)]
pub enum Norms<'n> {
    /// Before it (pre-norm).
    Before(&'n str),
    /// After it (post-norm).
    After(&'n str),
    /// Before and after it.
    Around(&'n str, &'n str),
}

/// A residual connection: `x + scale * after(part(before(x)))`.
pub fn residual(
    scope: &mut Scope<'_, '_>,
    x: ValueId,
    norms: Norms<'_>,
    part: impl FnOnce(&mut Scope<'_, '_>, ValueId) -> ValueId,
) -> ValueId {
    let (before, after) = match norms {
        Norms::Before(before) => (Some(before), None),
        Norms::After(after) => (None, Some(after)),
        Norms::Around(before, after) => (Some(before), Some(after)),
    };
    let input = before.map_or(x, |name| norm::row(scope, x, name));
    let result = part(scope, input);
    let result = after.map_or(result, |name| norm::row(scope, result, name));
    let result = scope.scaled(result, scope.hyperparams.scales.residual);
    scope.graph.add(x, result)
}

/// A layer: attention, then another part, each with norms and a residual connection.
pub fn layer(
    scope: &mut Scope<'_, '_>,
    x: ValueId,
    [attention_norms, mlp_norms]: [Norms<'_>; 2],
    mlp: impl FnOnce(&mut Scope<'_, '_>, ValueId) -> ValueId,
) -> ValueId {
    let x = residual(scope, x, attention_norms, attention::causal);
    residual(scope, x, mlp_norms, mlp)
}

/// A parallel layer: `x + attention(norm(x)) + mlp(norm(x))`, with
/// one norm for both or one for each.
pub fn parallel_layer(
    scope: &mut Scope<'_, '_>,
    x: ValueId,
    [attention_norm, mlp_norm]: [&str; 2],
    mlp: impl FnOnce(&mut Scope<'_, '_>, ValueId) -> ValueId,
) -> ValueId {
    let input = norm::row(scope, x, attention_norm);
    let mixed = attention::causal(scope, input);
    let input = if mlp_norm == attention_norm { input } else { norm::row(scope, x, mlp_norm) };
    let fed = mlp(scope, input);
    let sum = scope.graph.add(mixed, fed);
    scope.graph.add(x, sum)
}

/// A layer: attention, then a gated MLP, each with norms and a residual connection.
pub fn gated_layer(
    scope: &mut Scope<'_, '_>,
    x: ValueId,
    norms: [Norms<'_>; 2],
    activation: Activation,
) -> ValueId {
    layer(scope, x, norms, |scope, x| mlp::gated(scope, x, activation))
}

/// Norms before attention and before the feed-forward part.
pub const PRE_NORMS: [Norms<'static>; 2] = [Norms::Before("attn_norm"), Norms::Before("ffn_norm")];
/// Norms after them.
pub const POST_NORMS: [Norms<'static>; 2] =
    [Norms::After("post_attention_norm"), Norms::After("post_ffw_norm")];
/// Norms before and after them.
pub const SANDWICH_NORMS: [Norms<'static>; 2] =
    [Norms::Around("attn_norm", "post_attention_norm"), Norms::Around("ffn_norm", "post_ffw_norm")];
