use std::collections::HashSet;

use minfer_graph::{Graph, ModelGraph, Op, WeightId};

/// What of a model's weights one token needs: the measure of a benchmark's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightTraffic {
    /// Bytes, as the backend keeps them, of every matrix that a decoded token multiplies with.
    pub bytes: u64,
    /// Multiply-accumulates of the body for each token.
    pub body_products: u64,
    /// Multiply-accumulates of the head for each row of logits.
    pub head_products: u64,
}

impl WeightTraffic {
    /// Counts the linear operations of a model_graph. `kept` are the bytes that a backend keeps of each weight.
    pub(crate) fn of(model_graph: &ModelGraph, kept: &[u64]) -> WeightTraffic {
        let (body, head) = (matrices(&model_graph.body), matrices(&model_graph.head));
        let products = |ids: &[WeightId]| ids.iter().map(|&id| elements(model_graph, id)).sum();
        let distinct: HashSet<WeightId> = body.iter().chain(&head).copied().collect();
        WeightTraffic {
            bytes: distinct.into_iter().map(|id| kept[id.0 as usize]).sum(),
            body_products: products(&body),
            head_products: products(&head),
        }
    }
}

fn elements(model_graph: &ModelGraph, id: WeightId) -> u64 {
    let weight = model_graph.weight(id);
    u64::from(weight.rows()) * u64::from(weight.columns())
}

fn matrices(graph: &Graph) -> Vec<WeightId> {
    let parts = graph.nodes.iter().filter_map(|node| match &node.op {
        Op::Linear { parts } => Some(parts.iter().map(|part| part.weight)),
        _ => None,
    });
    parts.flatten().collect()
}
