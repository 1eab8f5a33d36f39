//! Attention of a layer over its own KV cache.

use minfer_graph::{AttentionSpec, Mask, RopeSpec, ValueId};

use super::Scope;
use crate::Hyperparams;

/// Projects, rotates and stores K and V, then attends causally with grouped queries and projects back. Scores are scaled by
/// 1 / sqrt(k_dim).
pub fn causal(
    scope: &mut Scope<'_, '_>,
    hyperparams: &Hyperparams,
    rope: &RopeSpec,
    layer: u32,
    x: ValueId,
) -> ValueId {
    let Hyperparams { heads, kv_heads, k_dim, v_dim, .. } = *hyperparams;
    let q = scope.linear(x, "attn_q");
    let k = scope.linear(x, "attn_k");
    let v = scope.linear(x, "attn_v");
    let q = scope.graph.rope(q, rope, heads, k_dim);
    let k = scope.graph.rope(k, rope, kv_heads, k_dim);
    scope.graph.kv_store(k, v, layer, kv_heads);
    let spec = AttentionSpec {
        layer,
        heads,
        kv_heads,
        k_dim,
        v_dim,
        scale: ((1.0 / f64::from(k_dim).sqrt()) as f32).into(),
        mask: Mask::Causal,
        softcap: None,
        sinks: None,
    };
    let mixed = scope.graph.attention(q, spec);
    scope.linear(mixed, "attn_output")
}
