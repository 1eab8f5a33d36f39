//! Graph rewrites: fusions that make a graph cheaper and change no bit of its results.
//!
//! Each rewrite has a name and can be switched off. The graph without any rewrite is valid and
//! runs.

mod add_norm;
mod merge_linears;
mod patch;
mod rope_store;
mod views;

use crate::backend::Support;
use crate::{Graph, ModelGraph, Node, NodeId, VerifyError, WeightDesc};

pub use patch::{Patch, Site};

/// A named rewrite: it gives the patch for a node where it applies.
#[derive(Debug, Clone, Copy)]
pub struct Rewrite {
    /// The name for `rewrites_off` and in reports.
    pub name: &'static str,
    /// The patch for a node, if the rule applies there.
    pub find: fn(&Site<'_>, NodeId) -> Option<Patch>,
}

/// Every rewrite, in the order in which they are tried.
pub const REWRITES: [Rewrite; 5] = [
    Rewrite { name: "merge_linears", find: merge_linears::find },
    Rewrite { name: "add_norm", find: add_norm::find },
    Rewrite { name: "rope_store", find: rope_store::find },
    Rewrite { name: "fold_view", find: views::fold },
    Rewrite { name: "dead_view", find: views::dead },
];

/// How often each rewrite was applied, and which patches were refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RewriteReport {
    /// Applied patches of each enabled rewrite, in order.
    pub applied: Vec<(&'static str, usize)>,
    /// Patches that were not applied because the backend does not support their nodes.
    pub refused: Vec<RefusedPatch>,
}

impl RewriteReport {
    /// How often a rewrite was applied.
    pub fn count(&self, name: &str) -> usize {
        self.applied.iter().find(|(rewrite, _)| *rewrite == name).map_or(0, |&(_, count)| count)
    }
}

/// A patch that the backend does not support.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedPatch {
    /// The rewrite.
    pub rewrite: &'static str,
    /// The node that the patch would have made.
    pub node: String,
    /// The backend's reason.
    pub reason: String,
}

/// Why a model graph could not be rewritten.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    /// An unknown name.
    #[error("unknown rewrite {name:?} (choose from {})", names().join(", "))]
    Unknown {
        /// The name that was given.
        name: String,
    },
    /// A rewrite made a graph that is not valid: a bug of the rewrite.
    #[error("rewrite {rewrite} at {node}: {error}")]
    Broken {
        /// The rule.
        rewrite: &'static str,
        /// The node that it was applied to.
        node: String,
        /// What is broken.
        error: VerifyError,
    },
    /// Rewrites that undo each other.
    #[error("{graph}: the rewrites do not come to rest; the last was {rewrite}")]
    Endless {
        /// The graph.
        graph: String,
        /// The rule applied last.
        rewrite: &'static str,
    },
}

/// The names of [`REWRITES`].
pub fn names() -> Vec<&'static str> {
    REWRITES.iter().map(|rewrite| rewrite.name).collect()
}

/// The rewrites without those named in `off`.
///
/// # Errors
/// An unknown name.
pub fn enabled(off: &[String]) -> Result<Vec<Rewrite>, RewriteError> {
    if let Some(name) = off.iter().find(|name| !names().contains(&name.as_str())) {
        return Err(RewriteError::Unknown { name: name.clone() });
    }
    Ok(REWRITES.into_iter().filter(|rewrite| !off.iter().any(|name| name == rewrite.name)).collect())
}

/// Whether the backend supports a new node, given the patched graph.
pub type Accept<'a> = dyn Fn(&Graph, &Node) -> Support + 'a;

/// Applies rewrites to both graphs of a model graph until none applies. Patches with a node that
/// `accept` does not support are left out and reported.
///
/// # Errors
/// A rule is broken. With debug assertions the graph is verified after each patch, else once at the
/// end.
pub fn rewrite(
    model_graph: &mut ModelGraph,
    rewrites: &[Rewrite],
    accept: &Accept<'_>,
) -> Result<RewriteReport, RewriteError> {
    let applied = rewrites.iter().map(|rewrite| (rewrite.name, 0)).collect();
    let mut report = RewriteReport { applied, refused: Vec::new() };
    for graph in [&mut model_graph.body, &mut model_graph.head] {
        rewrite_graph(graph, &model_graph.weights, rewrites, accept, &mut report)?;
    }
    Ok(report)
}

/// [`rewrite`] for a backend that supports everything.
///
/// # Errors
/// A rule is broken.
pub fn rewrite_all(
    model_graph: &mut ModelGraph,
    rewrites: &[Rewrite],
) -> Result<RewriteReport, RewriteError> {
    rewrite(model_graph, rewrites, &|_, _| Support::Supported)
}

fn rewrite_graph(
    graph: &mut Graph,
    weights: &[WeightDesc],
    rewrites: &[Rewrite],
    accept: &Accept<'_>,
    report: &mut RewriteReport,
) -> Result<(), RewriteError> {
    let limit = 16 * (graph.nodes.len() + 16);
    let mut patches = 0;
    loop {
        let before = patches;
        for (index, rewrite) in rewrites.iter().enumerate() {
            let refused = report.refused.len();
            let count = sweep(graph, weights, rewrite, accept, limit - patches, &mut report.refused)?;
            // A later sweep meets the same refusals again.
            let fresh = report.refused.split_off(refused);
            for refusal in fresh {
                if !report.refused.contains(&refusal) {
                    report.refused.push(refusal);
                }
            }
            report.applied[index].1 += count;
            patches += count;
            if patches == limit {
                return Err(RewriteError::Endless { graph: graph.name.clone(), rewrite: rewrite.name });
            }
        }
        if patches == before {
            graph.drop_unused_values();
            return Ok(());
        }
    }
}

/// Tries one rewrite at every node, applies at most `limit` patches and returns their number.
fn sweep(
    graph: &mut Graph,
    weights: &[WeightDesc],
    rewrite: &Rewrite,
    accept: &Accept<'_>,
    limit: usize,
    refused: &mut Vec<RefusedPatch>,
) -> Result<usize, RewriteError> {
    let mut count = 0;
    let mut site = Site::new(graph);
    let mut index = 0;
    while index < site.graph.nodes.len() && count < limit {
        let found = (rewrite.find)(&site, NodeId(index as u32));
        let Some(patch) = found else {
            index += 1;
            continue;
        };
        let node = site.graph.nodes[index].name.clone();
        let patched = patch.apply(site.graph);
        if cfg!(debug_assertions) {
            let broken = |error| RewriteError::Broken { rewrite: rewrite.name, node, error };
            patched.verify(weights).map_err(broken)?;
        }
        if let Some(refusal) = refusal(&patch, &patched, rewrite, accept) {
            refused.push(refusal);
            index += 1;
            continue;
        }
        *graph = patched;
        site = Site::new(graph);
        count += 1;
        // The patch may have put other nodes here: look at this index again, from one before on.
        index = index.saturating_sub(1);
    }
    Ok(count)
}

fn refusal(patch: &Patch, patched: &Graph, rewrite: &Rewrite, accept: &Accept<'_>) -> Option<RefusedPatch> {
    patch.insert.iter().find_map(|(_, node)| match accept(patched, node) {
        Support::Supported => None,
        Support::Unsupported(reason) => {
            Some(RefusedPatch { rewrite: rewrite.name, node: node.name.clone(), reason })
        }
    })
}
