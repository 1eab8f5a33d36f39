//! From hidden rows to logits.

use minfer_graph::{Graph, ProgramBuilder};

use super::{Scope, norm};
use crate::{Hyperparams, Present};

/// Gathers the asked rows, norms them and projects them onto the vocabulary: with `output.weight`, or with the embedding's
/// table where the file ties the two.
pub fn logits(program: &mut ProgramBuilder, present: &Present, hyperparams: &Hyperparams) -> Graph {
    let (mut graph, hidden) = program.head(hyperparams.width);
    let mut scope = Scope::model(&mut graph, present);
    let rows = scope.graph.gather_rows(hidden);
    let normed = norm::rms_norm(&mut scope, rows, "output_norm", hyperparams.norm_eps);
    let weight = match scope.optional("output.weight") {
        Some(own) => own,
        None => scope.required("token_embd.weight"),
    };
    let logits = scope.graph.linear(normed, weight, None, "output");
    graph.finish(&[logits])
}
