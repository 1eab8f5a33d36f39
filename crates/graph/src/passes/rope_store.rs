//! Fuses RoPE of Q and K with the store of K and V into one pass over the joint projection.

use super::{Patch, Site};
use crate::{Dim, Node, NodeId, Op, RopeSpec, RopeStoreSpec, TensorDesc, ValueId};

/// Applies at a store whose K is a rotated view and whose V is a view of the same row, with a Q
/// before them that turns by the same angles: Q, K, V side by side in this order.
pub(super) fn find(site: &Site<'_>, id: NodeId) -> Option<Patch> {
    let store = site.node(id);
    let Op::KvStore { layer, kv_heads, k_dim, v_dim } = store.op else { return None };
    let k = rotated_view(site, store.inputs[0])?;
    let v = view(site, store.inputs[1])?;
    let fits = (k.heads, k.head_dim) == (kv_heads, k_dim)
        && v.joint == k.view.joint
        && v.offset == k.view.end()
        && site.only_read_by(k.result, id)
        && site.only_read_by(v.value, id);
    if !fits {
        return None;
    }
    let q = find_q(site, id, &k)?;
    let spec = RopeStoreSpec { layer, heads: q.heads, kv_heads, k_dim, v_dim, rope: k.rope.clone() };
    Some(patch(site, id, &q, &k, &v, spec))
}

/// Some columns of a joint row.
struct Columns {
    node: NodeId,
    value: ValueId,
    joint: ValueId,
    offset: u32,
    width: u32,
}

impl Columns {
    fn end(&self) -> u32 {
        self.offset + self.width
    }
}

/// A rotation of a view that nobody else reads.
struct Rotated<'a> {
    node: NodeId,
    result: ValueId,
    view: Columns,
    rope: &'a RopeSpec,
    heads: u32,
    head_dim: u32,
}

fn view(site: &Site<'_>, value: ValueId) -> Option<Columns> {
    let (node_id, node) = site.producer(value)?;
    let Op::View { offset } = node.op else { return None };
    let width = site.graph.value(value).width();
    Some(Columns { node: node_id, value, joint: node.inputs[0], offset, width })
}

fn rotated_view<'a>(site: &Site<'a>, result: ValueId) -> Option<Rotated<'a>> {
    let (node_id, node) = site.producer(result)?;
    let Op::Rope { rope, heads, head_dim } = &node.op else { return None };
    let view = view(site, node.inputs[0])?;
    site.only_read_by(view.value, node_id).then_some(Rotated {
        node: node_id,
        result,
        view,
        rope,
        heads: *heads,
        head_dim: *head_dim,
    })
}

/// The rotated columns that end where K begins and are first read after the store.
fn find_q<'a>(site: &Site<'a>, store: NodeId, k: &Rotated<'_>) -> Option<Rotated<'a>> {
    let ropes = site.consumers(k.view.joint).iter().flat_map(|&view| {
        let results = &site.node(view).outputs;
        results.iter().flat_map(|&columns| site.consumers(columns)).copied()
    });
    ropes
        .filter(|&rope| rope != k.node)
        .filter_map(|rope| rotated_view(site, *site.node(rope).outputs.first()?))
        .find(|q| {
            q.view.end() == k.view.offset
                && q.head_dim == k.head_dim
                && q.heads.is_multiple_of(k.heads)
                && q.rope == k.rope
                && site.consumers(q.result).iter().all(|&reader| reader > store)
        })
}

fn patch(
    site: &Site<'_>,
    store: NodeId,
    q: &Rotated<'_>,
    k: &Rotated<'_>,
    v: &Columns,
    spec: RopeStoreSpec,
) -> Patch {
    let mut patch =
        Patch { remove: vec![q.view.node, q.node, k.view.node, k.node, v.node, store], ..Patch::default() };
    let joint = site.graph.value(v.joint);
    let width = v.end() - q.view.offset;
    let mut row = v.joint;
    if width != joint.width() {
        let name = format!("blk.{}.qkv", spec.layer);
        row = site.new_value(0);
        let dims = vec![joint.dims[0], Dim::fixed(width)];
        patch.values.push(TensorDesc { dtype: joint.dtype, dims, name: name.clone() });
        let op = Op::View { offset: q.view.offset };
        patch.insert.push((store, Node { op, inputs: vec![v.joint], outputs: vec![row], name }));
    }
    let name = format!("blk.{}.rope_store", spec.layer);
    let fused = Node { op: Op::RopeStore(spec), inputs: vec![row], outputs: vec![q.result], name };
    patch.insert.push((store, fused));
    patch
}
