//! Fuses a residual add with the norm that reads it.

use super::{Patch, Site};
use crate::{Node, NodeId, Op};

/// Applies at a sum: the first norm of whole rows that reads it joins it.
pub(super) fn find(site: &Site<'_>, id: NodeId) -> Option<Patch> {
    let add = site.node(id);
    let Op::Add = add.op else { return None };
    let sum = add.outputs[0];
    let (norm_id, norm, spec) = site.consumers(sum).iter().find_map(|&other| match &site.node(other).op {
        Op::Norm(spec) if spec.groups == 1 => Some((other, site.node(other), *spec)),
        _ => None,
    })?;
    let fused = Node {
        op: Op::AddNorm(spec),
        inputs: add.inputs.clone(),
        outputs: vec![sum, norm.outputs[0]],
        name: norm.name.clone(),
    };
    Some(Patch { remove: vec![id, norm_id], insert: vec![(id, fused)], ..Patch::default() })
}
