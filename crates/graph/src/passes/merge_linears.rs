//! Merges linear maps of one input (Q, K and V; gate and up) into one node, so that the input is
//! read and quantised once.

use super::{Patch, Site};
use crate::{Node, NodeId, Op, TensorDesc, ValueId};

/// Applies at the first of all linear maps of a value: they become one node in its place, in node
/// order, and each old result a view. A result that leaves the graph stays alone, since a view is
/// not contiguous.
pub(super) fn find(site: &Site<'_>, id: NodeId) -> Option<Patch> {
    let Op::Linear { .. } = site.node(id).op else { return None };
    let operand = site.node(id).inputs[0];
    let siblings: Vec<NodeId> = site
        .consumers(operand)
        .iter()
        .copied()
        .filter(|&other| matches!(site.node(other).op, Op::Linear { .. }))
        .filter(|&other| !site.is_output(site.node(other).outputs[0]))
        .collect();
    if siblings.len() < 2 || siblings[0] != id {
        return None;
    }
    let nodes: Vec<&Node> = siblings.iter().map(|&other| site.node(other)).collect();
    let width = nodes
        .iter()
        .try_fold(0u32, |sum, node| sum.checked_add(site.graph.value(node.outputs[0]).width()))?;
    let parts = nodes.iter().flat_map(|node| match &node.op {
        Op::Linear { parts } => parts.iter().copied(),
        _ => unreachable!("siblings are linear maps"),
    });
    let name = joint_name(&nodes);
    let joint = site.new_value(0);
    let rows = site.graph.value(operand).row_symbol();
    let mut patch = Patch {
        remove: siblings.clone(),
        values: vec![TensorDesc {
            dims: vec![site.graph.value(operand).dims[0], crate::Dim::fixed(width)],
            ..TensorDesc::rows(rows, width, name.clone())
        }],
        ..Patch::default()
    };
    let linear =
        Node { op: Op::Linear { parts: parts.collect() }, inputs: vec![operand], outputs: vec![joint], name };
    patch.insert.push((id, linear));
    let mut offset = 0;
    for node in nodes {
        patch.insert.push((id, view(joint, offset, node)));
        offset += site.graph.value(node.outputs[0]).width();
    }
    Some(patch)
}

fn view(joint: ValueId, offset: u32, node: &Node) -> Node {
    Node {
        op: Op::View { offset },
        inputs: vec![joint],
        outputs: node.outputs.clone(),
        name: node.name.clone(),
    }
}

/// `blk.0.attn_q`, `blk.0.attn_k` -> `blk.0.attn_q+attn_k`.
fn joint_name(nodes: &[&Node]) -> String {
    let block = nodes[0].name.rfind('.').map_or("", |end| &nodes[0].name[..=end]);
    let mut name = nodes[0].name.clone();
    for node in &nodes[1..] {
        name.push('+');
        name.push_str(node.name.strip_prefix(block).unwrap_or(&node.name));
    }
    name
}
