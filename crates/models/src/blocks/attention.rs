//! The attention block: projections, norms of Q and K, RoPE, KV store, attention, output
//! projection.

use minfer_graph::{AttentionSpec, Mask, ValueId};

use super::{Scope, norm, rope};
use crate::Hyperparams;

/// Causal grouped-query attention of a layer. Scale, soft cap, window and RoPE come from the
/// hyperparameters. A joint projection and norms of Q and K are used if the file has them.
pub fn causal(scope: &mut Scope<'_, '_>, x: ValueId) -> ValueId {
    let Hyperparams { heads, kv_heads, k_dim, v_dim, .. } = *scope.hyperparams;
    let (numbers, layer) = (scope.hyperparams, scope.layer);
    let [q, k, v] = projections(scope, x);
    let q = norm::heads(scope, q, "attn_q_norm", heads);
    let k = norm::heads(scope, k, "attn_k_norm", kv_heads);
    let rope = numbers.rope_of(layer).map(rope::spec);
    let (q, k) = match &rope {
        Some(rope) => (scope.graph.rope(q, rope, heads, k_dim), scope.graph.rope(k, rope, kv_heads, k_dim)),
        None => (q, k),
    };
    scope.graph.kv_store(k, v, layer, kv_heads);
    let spec = AttentionSpec {
        layer,
        heads,
        kv_heads,
        k_dim,
        v_dim,
        scale: numbers.attention.scale.into(),
        mask: numbers.attention.window_of(layer).map_or(Mask::Causal, Mask::Window),
        softcap: numbers.attention.softcap.map(Into::into),
        sinks: None,
        rope,
    };
    let mixed = scope.graph.attention(q, spec);
    scope.linear(mixed, "attn_output")
}

/// Q, K and V: from one joint projection where the file has it, else from three.
fn projections(scope: &mut Scope<'_, '_>, x: ValueId) -> [ValueId; 3] {
    if scope.optional("attn_qkv.weight").is_none() {
        return ["attn_q", "attn_k", "attn_v"].map(|local| scope.linear(x, local));
    }
    let [q, k, v] = [scope.hyperparams.q_size(), scope.hyperparams.k_size(), scope.hyperparams.v_size()];
    let joint = scope.linear(x, "attn_qkv");
    [
        scope.view(joint, 0, q, "attn_q"),
        scope.view(joint, q, k, "attn_k"),
        scope.view(joint, q + k, v, "attn_v"),
    ]
}
