//! The MLP block of a layer, with and without gate.

use minfer_graph::{Activation, ValueId};

use super::Scope;

/// `down(activation(gate(x)) * up(x))`; a file without a gate of its own has gate and up side by
/// side in `ffn_up`. (Shazeer, "GLU Variants Improve Transformer".)
pub fn gated(scope: &mut Scope<'_, '_>, x: ValueId, activation: Activation) -> ValueId {
    let (gate, up) = if scope.optional("ffn_gate.weight").is_some() {
        (scope.linear(x, "ffn_gate"), scope.linear(x, "ffn_up"))
    } else {
        let inner = scope.hyperparams.feed_forward;
        let joint = scope.linear(x, "ffn_up");
        (scope.view(joint, 0, inner, "ffn_gate"), scope.view(joint, inner, inner, "ffn_up.half"))
    };
    let gated = scope.graph.gated_activate(gate, up, activation);
    scope.linear(gated, "ffn_down")
}

/// `down(activation(up(x)))`.
pub fn plain(scope: &mut Scope<'_, '_>, x: ValueId, activation: Activation) -> ValueId {
    let up = scope.linear(x, "ffn_up");
    let active = scope.graph.activate(up, activation);
    scope.linear(active, "ffn_down")
}
