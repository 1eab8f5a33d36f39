//! The output head: final norm, output projection, scaling and soft cap of logits.

use minfer_graph::{Graph, ModelGraphBuilder};

use super::{Scope, norm};
use crate::{AvailableTensors, Hyperparams};

/// Builds the head: gather the output rows, norm, projection to logits with `output.weight` or, if
/// tied, the embedding table; then scale and soft cap if the model has them.
pub fn logits(
    model_graph: &mut ModelGraphBuilder,
    available: &AvailableTensors,
    hyperparams: &Hyperparams,
) -> Graph {
    let (mut graph, hidden) = model_graph.head(hyperparams.hidden_size);
    let mut scope = Scope::model(&mut graph, hyperparams, available);
    let rows = scope.graph.gather_rows(hidden);
    let normed = norm::row(&mut scope, rows, "output_norm");
    let weight = match scope.optional("output.weight") {
        Some(own) => own,
        None => scope.required("token_embd.weight"),
    };
    let bias = scope.optional("output.bias");
    let logits = scope.graph.linear(normed, weight, bias, "output");
    let logits = scope.scaled(logits, hyperparams.scales.logits);
    let logits = match hyperparams.scales.logit_softcap {
        Some(cap) => scope.graph.soft_cap(logits, cap),
        None => logits,
    };
    graph.finish(&[logits])
}
