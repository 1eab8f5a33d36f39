//! Placement: which backend runs each node. Decided once, at load. A node that no backend runs is
//! an error.

use std::fmt;
use std::ops::Range;

use crate::backend::{Backend, Support};
use crate::{Graph, KvSpec, ModelGraph, Node, TensorDesc, WeightDesc};

/// The backend of every node of a graph, and the refusals of preferred backends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Names of the backends, most preferred first.
    pub backends: Vec<String>,
    /// For each node the index of its backend.
    pub nodes: Vec<usize>,
    /// Nodes that a preferred backend does not support.
    pub refusals: Vec<Refusal>,
}

/// A node that a backend does not support.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The node's name.
    pub node: String,
    /// The operation's name.
    pub op: &'static str,
    /// The backend's name.
    pub backend: String,
    /// The values that are not supported.
    pub reason: String,
}

/// Consecutive nodes on one backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Index of the backend.
    pub backend: usize,
    /// Indexes of the nodes.
    pub nodes: Range<usize>,
}

/// A node that no backend supports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no backend runs {node} ({op}) of the {graph}: {}", join(.refusals))]
pub struct PlaceError {
    /// The graph's name.
    pub graph: String,
    /// The node's name.
    pub node: String,
    /// The operation's name.
    pub op: &'static str,
    /// The refusal of each backend.
    pub refusals: Vec<Refusal>,
}

impl Placement {
    /// Gives each node to the first backend that supports it.
    ///
    /// # Errors
    /// No backend supports a node.
    pub fn decide(
        graph: &Graph,
        weights: &[WeightDesc],
        kv: &KvSpec,
        backends: &[&dyn Backend],
    ) -> Result<Placement, PlaceError> {
        let names = backends.iter().map(|backend| backend.name().to_owned()).collect();
        let mut placement = Placement { backends: names, nodes: Vec::new(), refusals: Vec::new() };
        for node in &graph.nodes {
            let heard = placement.refusals.len();
            let chosen =
                backends.iter().position(|backend| match node_support(*backend, graph, node, weights, kv) {
                    Support::Supported => true,
                    Support::Unsupported(reason) => {
                        placement.refusals.push(Refusal {
                            node: node.name.clone(),
                            op: node.op.name(),
                            backend: backend.name().to_owned(),
                            reason,
                        });
                        false
                    }
                });
            placement.nodes.push(chosen.ok_or_else(|| PlaceError {
                graph: graph.name.clone(),
                node: node.name.clone(),
                op: node.op.name(),
                refusals: placement.refusals.split_off(heard),
            })?);
        }
        Ok(placement)
    }

    /// Consecutive nodes on one backend, in execution order.
    pub fn splits(&self) -> Vec<Split> {
        let mut splits: Vec<Split> = Vec::new();
        for (index, &backend) in self.nodes.iter().enumerate() {
            match splits.last_mut() {
                Some(split) if split.backend == backend => split.nodes.end = index + 1,
                _ => splits.push(Split { backend, nodes: index..index + 1 }),
            }
        }
        splits
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, backend) in self.backends.iter().enumerate() {
            let count = self.nodes.iter().filter(|&&node| node == index).count();
            let separator = if index == 0 { "" } else { ", " };
            write!(formatter, "{separator}nodes on {backend}: {count}")?;
        }
        for refusal in &self.refusals {
            write!(formatter, "\n{refusal}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({}) not on {}: {}", self.node, self.op, self.backend, self.reason)
    }
}

/// Whether a backend supports a node of a verified graph.
pub fn node_support(
    backend: &dyn Backend,
    graph: &Graph,
    node: &Node,
    weights: &[WeightDesc],
    kv: &KvSpec,
) -> Support {
    let inputs: Vec<&TensorDesc> = node.inputs.iter().map(|&id| graph.value(id)).collect();
    let outputs: Vec<&TensorDesc> = node.outputs.iter().map(|&id| graph.value(id)).collect();
    let used: Vec<&WeightDesc> = node.op.weights().iter().map(|id| &weights[id.0 as usize]).collect();
    backend.supports(&node.op, &inputs, &outputs, &used, kv)
}

/// Places both graphs of a model graph.
///
/// # Errors
/// No backend supports a node.
pub fn place(
    model_graph: &ModelGraph,
    kv: &KvSpec,
    backends: &[&dyn Backend],
) -> Result<[Placement; 2], PlaceError> {
    let decide = |graph| Placement::decide(graph, &model_graph.weights, kv, backends);
    Ok([decide(&model_graph.body)?, decide(&model_graph.head)?])
}

fn join(refusals: &[Refusal]) -> String {
    let texts: Vec<String> =
        refusals.iter().map(|refusal| format!("{}: {}", refusal.backend, refusal.reason)).collect();
    texts.join("; ")
}
