//! Graphs as plain data: values, nodes, weights, and the two graphs of a model.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use minfer_tensor::DType;

use crate::{EmbedBy, Mask, Op, TensorDesc};

/// Index of a value in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// Index of a node in its graph, in execution order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// Index of a weight in its model graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub u32);

/// A constant tensor of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WeightDesc {
    /// The tensor's name, for example `blk.0.attn_q.weight`.
    pub name: String,
    /// How its elements are stored in the source.
    pub dtype: DType,
    /// Row-major, last contiguous: `[rows, columns]`, or `[n]` for a vector.
    pub dims: Vec<u32>,
}

impl WeightDesc {
    /// Elements of a row.
    pub fn columns(&self) -> u32 {
        self.dims.last().copied().unwrap_or(0)
    }

    /// Rows: the product of all dimensions but the last. `u32::MAX` where that is more; no memory holds
    /// so many.
    pub fn rows(&self) -> u32 {
        self.dims.iter().rev().skip(1).fold(1, |rows, &dim| rows.saturating_mul(dim))
    }

    /// Bytes of the stored elements.
    ///
    /// # Panics
    /// Rows are not whole blocks; [`ModelGraph::verify`] refuses such a weight.
    pub fn bytes(&self) -> u64 {
        let row = self.dtype.row_bytes(u64::from(self.columns())).expect("verified rows are whole blocks");
        row.saturating_mul(u64::from(self.rows()))
    }
}

impl fmt::Display for WeightDesc {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {:?}", self.dtype, self.dims)
    }
}

/// One operation with its operands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    /// The operation.
    pub op: Op,
    /// Operands.
    pub inputs: Vec<ValueId>,
    /// Results; each value has exactly one producer.
    pub outputs: Vec<ValueId>,
    /// The name in messages and pictures, for example `blk.0.attn_norm`.
    pub name: String,
}

/// Nodes in execution order over a table of values. Pure data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Graph {
    /// `body` or `head`.
    pub name: String,
    /// Every value; the index is its [`ValueId`].
    pub values: Vec<TensorDesc>,
    /// Operations in execution order; the index is its [`NodeId`].
    pub nodes: Vec<Node>,
    /// Inputs.
    pub inputs: Vec<ValueId>,
    /// Outputs.
    pub outputs: Vec<ValueId>,
}

impl Graph {
    /// Type, shape and name of a value.
    ///
    /// # Panics
    /// The id is of another graph.
    pub fn value(&self, id: ValueId) -> &TensorDesc {
        &self.values[id.0 as usize]
    }
}

/// A model's two graphs over one table of weights. The head runs on chosen rows of the body's
/// output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelGraph {
    /// Every weight; the index is its [`WeightId`].
    pub weights: Vec<WeightDesc>,
    /// Token ids -> hidden rows, one output [tokens, width].
    pub body: Graph,
    /// Hidden rows -> logits: one input [tokens, width], one output [rows, vocabulary].
    pub head: Graph,
    /// Graphs that were built for this model: 2, and more where it was built again.
    pub builds: u64,
}

impl ModelGraph {
    /// Name, type and shape of a weight.
    ///
    /// # Panics
    /// The id is of another model graph.
    pub fn weight(&self, id: WeightId) -> &WeightDesc {
        &self.weights[id.0 as usize]
    }

    /// Weights that a graph names, each once, ascending.
    pub fn used_weights(&self) -> Vec<WeightId> {
        let nodes = self.body.nodes.iter().chain(&self.head.nodes);
        let used: BTreeSet<WeightId> = nodes.flat_map(|node| node.op.weights()).collect();
        used.into_iter().collect()
    }

    /// Tokens that every embedding table of the body has a row for; `u32::MAX` for a body without
    /// one.
    pub fn input_vocabulary(&self) -> u32 {
        self.embedded(EmbedBy::Token)
    }

    /// Positions that every learned position embedding of the body has a row for; `u32::MAX` for a
    /// body without one.
    pub fn input_positions(&self) -> u32 {
        self.embedded(EmbedBy::Position)
    }

    fn embedded(&self, wanted: EmbedBy) -> u32 {
        let tables = self.body.nodes.iter().filter_map(|node| match node.op {
            Op::Embed { table, by } if by == wanted => Some(self.weight(table).rows()),
            _ => None,
        });
        tables.min().unwrap_or(u32::MAX)
    }

    /// Layers whose K and V the body stores, ascending, with the positions that their readers see.
    pub fn kv_layers(&self) -> Vec<KvLayer> {
        let mut layers: BTreeMap<u32, KvLayer> = BTreeMap::new();
        for node in &self.body.nodes {
            let (layer, kv_heads, k_dim, v_dim) = match &node.op {
                Op::KvStore { layer, kv_heads, k_dim, v_dim } => (*layer, *kv_heads, *k_dim, *v_dim),
                Op::RopeStore(spec) => (spec.layer, spec.kv_heads, spec.k_dim, spec.v_dim),
                Op::Attention(spec) => {
                    if let Some(layer) = layers.get_mut(&spec.layer) {
                        layer.window = match (spec.mask, layer.window) {
                            (Mask::Window(window), Some(widest)) => Some(widest.max(window)),
                            _ => None,
                        };
                    }
                    continue;
                }
                _ => continue,
            };
            layers.insert(layer, KvLayer { layer, kv_heads, k_dim, v_dim, window: Some(0) });
        }
        layers.into_values().collect()
    }
}

/// Shape of a layer's KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvLayer {
    /// The model's layer number.
    pub layer: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Elements of a K head.
    pub k_dim: u32,
    /// Elements of a V head.
    pub v_dim: u32,
    /// The widest window of the attentions that read it; `None` if one has no window.
    pub window: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_of_more_rows_than_can_be_counted_does_not_wrap() {
        let desc = |dims: &[u32]| WeightDesc { name: "w".to_owned(), dtype: DType::F32, dims: dims.to_vec() };
        assert_eq!(desc(&[3, 5, 7]).rows(), 15);
        let huge = desc(&[1 << 16, (1 << 16) + 1, u32::MAX]);
        assert_eq!((huge.rows(), huge.bytes()), (u32::MAX, u64::MAX));
    }
}
