//! The feed-forward part of a layer.

use minfer_graph::{Activation, ValueId};

use super::Scope;

/// `down(activation(gate(x)) * up(x))`. (Shazeer, "GLU Variants Improve Transformer".)
pub fn gated(scope: &mut Scope<'_, '_>, x: ValueId, activation: Activation) -> ValueId {
    let gate = scope.linear(x, "ffn_gate");
    let up = scope.linear(x, "ffn_up");
    let gated = scope.graph.gated_activate(gate, up, activation);
    scope.linear(gated, "ffn_down")
}
