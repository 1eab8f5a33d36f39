//! Memory traffic and arithmetic of one token, for comparing a benchmark with the roofline.

use std::collections::HashSet;

use minfer_graph::{Graph, ModelGraph, Op, WeightId};

/// Weight bytes and multiply-accumulates of one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WeightTraffic {
    /// Bytes of packed weights that a decoded token reads.
    pub bytes: u64,
    /// Multiply-accumulates of the body for each token.
    pub body_products: u64,
    /// Multiply-accumulates of the head for each row of logits.
    pub head_products: u64,
}

impl WeightTraffic {
    /// Counts the linear operations. `kept` are the bytes that the backend keeps of each weight.
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
