//! Folds views of views into one view and removes views that nothing reads.

use super::{Patch, Site};
use crate::{Node, NodeId, Op};

/// Applies at a view of a view, which then looks at the source itself, and at a view of a whole
/// row, which its readers replace by the source.
pub(super) fn fold(site: &Site<'_>, id: NodeId) -> Option<Patch> {
    let node = site.node(id);
    let Op::View { offset } = node.op else { return None };
    let (source, result) = (node.inputs[0], node.outputs[0]);
    let graph = site.graph;
    if graph.value(source).width() == graph.value(result).width() && !site.is_output(result) {
        return Some(Patch { remove: vec![id], replace: vec![(result, source)], ..Patch::default() });
    }
    let (_, parent) = site.producer(source)?;
    let Op::View { offset: first } = parent.op else { return None };
    let op = Op::View { offset: first + offset };
    let folded = Node { op, inputs: parent.inputs.clone(), ..node.clone() };
    Some(Patch { remove: vec![id], insert: vec![(id, folded)], ..Patch::default() })
}

/// Applies at a view that nobody reads.
pub(super) fn dead(site: &Site<'_>, id: NodeId) -> Option<Patch> {
    let node = site.node(id);
    let Op::View { .. } = node.op else { return None };
    let result = node.outputs[0];
    let unread = site.consumers(result).is_empty() && !site.is_output(result);
    unread.then(|| Patch { remove: vec![id], ..Patch::default() })
}
