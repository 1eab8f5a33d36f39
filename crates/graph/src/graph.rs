use std::fmt;

use minfer_tensor::DType;

use crate::{Op, TensorDesc};

/// Index of a value in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// Index of a node in its graph, in execution order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// Index of a weight in its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub u32);

/// A constant tensor of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WeightDesc {
    /// The tensor's name, for example `blk.0.attn_q.weight`.
    pub name: String,
    /// How its elements are stored in the source.
    pub dtype: DType,
    /// Row-major, last contiguous: [rows, columns], or [n] for a vector.
    pub dims: Vec<u32>,
}

impl WeightDesc {
    /// Elements of a row.
    pub fn columns(&self) -> u32 {
        self.dims.last().copied().unwrap_or(0)
    }

    /// Rows: the product of all dimensions but the last.
    pub fn rows(&self) -> u32 {
        self.dims.iter().rev().skip(1).product()
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
    /// What is done.
    pub op: Op,
    /// Operands.
    pub inputs: Vec<ValueId>,
    /// Results; each value has exactly one producer.
    pub outputs: Vec<ValueId>,
    /// A name for people, for example `blk.0.attn_norm`.
    pub name: String,
}

/// Nodes in execution order over a table of values. Pure data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Graph {
    /// A name for people: `body` or `head`.
    pub name: String,
    /// Every value; the index is its [`ValueId`].
    pub values: Vec<TensorDesc>,
    /// Operations in execution order; the index is its [`NodeId`].
    pub nodes: Vec<Node>,
    /// Values that come from outside.
    pub inputs: Vec<ValueId>,
    /// Values that are read from outside.
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

/// A model's two graphs over one table of weights. The head runs on chosen rows of the body's output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Every weight; the index is its [`WeightId`].
    pub weights: Vec<WeightDesc>,
    /// Token ids -> hidden rows, one output [tokens, width].
    pub body: Graph,
    /// Hidden rows -> logits: one input [tokens, width], one output [rows, vocabulary].
    pub head: Graph,
}

impl Program {
    /// Name, type and shape of a weight.
    ///
    /// # Panics
    /// The id is of another program.
    pub fn weight(&self, id: WeightId) -> &WeightDesc {
        &self.weights[id.0 as usize]
    }
}
