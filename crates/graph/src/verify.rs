//! The rules of graphs: what every operation requires of its operands, results and weights.
//!
//! [`output_shapes`] states each operation's rule once. The builder uses it to infer results,
//! [`ModelGraph::verify`] to check them.

mod shapes;

use std::collections::{HashMap, HashSet};

pub use shapes::output_shapes;

use shapes::{is_rows, shape_text};

use crate::{Graph, ModelGraph, Node, Op, RopeSpec, Symbol, TensorDesc, ValueId, WeightDesc};

/// A broken rule of a graph, with its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{graph}: {node} ({op}): {fault}")]
pub struct VerifyError {
    /// The graph's name.
    pub graph: String,
    /// The node's name, or `inputs` or `outputs`.
    pub node: String,
    /// The operation's name, or `graph`.
    pub op: &'static str,
    /// The broken rule.
    pub fault: Box<Fault>,
}

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The operation takes another number of operands.
    #[error("takes {expected} operands, has {found}")]
    Operands {
        /// What the operation takes.
        expected: usize,
        /// What the node has.
        found: usize,
    },
    /// The operation has another number of results.
    #[error("has {expected} results, the node lists {found}")]
    Results {
        /// What the operation yields.
        expected: usize,
        /// What the node lists.
        found: usize,
    },
    /// A value id that the graph does not have.
    #[error("value {0} is not in the table of values")]
    UnknownValue(u32),
    /// A weight id that the model graph does not have.
    #[error("weight {0} is not in the table of weights")]
    UnknownWeight(u32),
    /// A value that no earlier node and no input defines.
    #[error("{value} is used before it is defined")]
    NotDefined {
        /// The value's name.
        value: String,
    },
    /// A value with two producers.
    #[error("{value} is defined twice")]
    DefinedTwice {
        /// The value's name.
        value: String,
    },
    /// A value that is not an f32 matrix of rows.
    #[error("{value} is {found}, expected an F32 matrix with a constant, non-zero width")]
    NotRows {
        /// The value's name.
        value: String,
        /// Its description.
        found: String,
    },
    /// A shape that does not fit the operation.
    #[error("{what} is {found}, expected {expected}")]
    Shape {
        /// Which operand or result.
        what: String,
        /// What the operation asks for.
        expected: String,
        /// What the graph has.
        found: String,
    },
    /// A weight of a wrong type or shape.
    #[error("{role} {weight} is {found}, expected {expected}")]
    Weight {
        /// What the weight is used for.
        role: &'static str,
        /// The weight's name.
        weight: String,
        /// What the operation asks for.
        expected: String,
        /// What the model graph has.
        found: String,
    },
    /// Parameters of an operation that contradict each other.
    #[error("{0}")]
    Payload(String),
    /// An attention that reads a cache no earlier node has filled.
    #[error("reads the KV cache of layer {layer}, which no earlier node stores")]
    KvNotStored {
        /// The layer.
        layer: u32,
    },
    /// Two stores to one layer.
    #[error("stores the KV cache of layer {layer}, as {first} does")]
    KvStoredTwice {
        /// The layer.
        layer: u32,
        /// The other store.
        first: String,
    },
    /// An attention that would turn queries by other angles than its layer's K.
    #[error("names another rotation of K than {store} stores")]
    OtherRotation {
        /// The node that stores K.
        store: String,
    },
    /// Body or head do not have the shape that an executor needs.
    #[error("{0}")]
    Interface(String),
}

impl ModelGraph {
    /// Checks weights, both graphs, and that they fit each other.
    ///
    /// # Errors
    /// The first broken rule in execution order, the body's before the head's.
    pub fn verify(&self) -> Result<(), VerifyError> {
        self.verify_weights()?;
        self.body.verify(&self.weights)?;
        self.head.verify(&self.weights)?;
        self.verify_interface()
    }

    fn verify_weights(&self) -> Result<(), VerifyError> {
        let fail = |weight: &WeightDesc, fault| VerifyError {
            graph: "model".to_owned(),
            node: weight.name.clone(),
            op: "weight",
            fault: Box::new(fault),
        };
        let mut names = HashSet::new();
        for weight in &self.weights {
            if !names.insert(weight.name.as_str()) {
                return Err(fail(weight, Fault::Payload("two weights have this name".to_owned())));
            }
            if weight.dims.is_empty() || weight.dims.contains(&0) {
                return Err(fail(weight, Fault::Payload(format!("{weight} has no elements"))));
            }
            if let Err(error) = weight.dtype.row_bytes(u64::from(weight.columns())) {
                return Err(fail(weight, Fault::Payload(error.to_string())));
            }
        }
        Ok(())
    }

    fn verify_interface(&self) -> Result<(), VerifyError> {
        let fail = |graph: &Graph, node: &str, text: String| {
            Err(VerifyError {
                graph: graph.name.clone(),
                node: node.to_owned(),
                op: "graph",
                fault: Box::new(Fault::Interface(text)),
            })
        };
        let (body, head) = (&self.body, &self.head);
        if !body.inputs.is_empty() {
            return fail(body, "inputs", format!("the body has {} inputs, expected none", body.inputs.len()));
        }
        if head.inputs.len() != 1 || body.outputs.len() != 1 || head.outputs.len() != 1 {
            return fail(
                head,
                "inputs",
                format!(
                    "expected one body output, one head input and one head output, found {}, {} and {}",
                    body.outputs.len(),
                    head.inputs.len(),
                    head.outputs.len()
                ),
            );
        }
        let (hidden, input) = (body.value(body.outputs[0]), head.value(head.inputs[0]));
        if hidden.row_symbol() != Symbol::Tokens || hidden.dims != input.dims {
            return fail(head, "inputs", format!("the head's input is {input}, the body's output {hidden}"));
        }
        let logits = head.value(head.outputs[0]);
        if logits.row_symbol() != Symbol::Rows {
            return fail(
                head,
                "outputs",
                format!("the logits are {logits}, expected one row for each of rows"),
            );
        }
        for graph in [body, head] {
            let output = graph.outputs[0];
            let producer = graph.nodes.iter().find(|node| node.outputs.contains(&output));
            if producer.is_none_or(|node| matches!(node.op, Op::View { .. })) {
                return fail(
                    graph,
                    "outputs",
                    "the output must be computed, not a view or an input".to_owned(),
                );
            }
        }
        if let Some(node) = head.nodes.iter().find(|node| node.op.touches_kv()) {
            return fail(head, &node.name, "the head must not touch the KV cache".to_owned());
        }
        Ok(())
    }
}

impl Graph {
    /// Checks every node against the rule of its operation, and the order of definitions and uses.
    ///
    /// # Errors
    /// The first broken rule in execution order.
    pub fn verify(&self, weights: &[WeightDesc]) -> Result<(), VerifyError> {
        let at = |node: &str, op: &'static str| {
            let (graph, node) = (self.name.clone(), node.to_owned());
            move |fault| VerifyError { graph, node, op, fault: Box::new(fault) }
        };
        let mut checker = Checker {
            graph: self,
            weights,
            defined: HashSet::new(),
            stored: HashMap::new(),
            rotated: HashMap::new(),
        };
        for &input in &self.inputs {
            checker.define(input).map_err(at("inputs", "graph"))?;
        }
        for node in &self.nodes {
            checker.node(node).map_err(at(&node.name, node.op.name()))?;
        }
        for &output in &self.outputs {
            checker.used(output).map_err(at("outputs", "graph"))?;
        }
        Ok(())
    }
}

struct Checker<'a> {
    graph: &'a Graph,
    weights: &'a [WeightDesc],
    defined: HashSet<ValueId>,
    stored: HashMap<u32, Stored<'a>>,
    rotated: HashMap<ValueId, &'a RopeSpec>,
}

/// A layer's cache as a node fills it.
struct Stored<'a> {
    by: &'a str,
    /// [kv_heads, k_dim, v_dim].
    geometry: [u32; 3],
    /// The rotation of K.
    rope: Option<&'a RopeSpec>,
}

impl<'a> Checker<'a> {
    fn define(&mut self, value: ValueId) -> Result<(), Fault> {
        let desc = self.known(value)?;
        if !is_rows(desc) {
            return Err(Fault::NotRows { value: desc.name.clone(), found: desc.to_string() });
        }
        if !self.defined.insert(value) {
            return Err(Fault::DefinedTwice { value: desc.name.clone() });
        }
        Ok(())
    }

    fn used(&self, value: ValueId) -> Result<&'a TensorDesc, Fault> {
        let desc = self.known(value)?;
        match self.defined.contains(&value) {
            true => Ok(desc),
            false => Err(Fault::NotDefined { value: desc.name.clone() }),
        }
    }

    fn known(&self, value: ValueId) -> Result<&'a TensorDesc, Fault> {
        self.graph.values.get(value.0 as usize).ok_or(Fault::UnknownValue(value.0))
    }

    fn node(&mut self, node: &'a Node) -> Result<(), Fault> {
        let inputs = node.inputs.iter().map(|&id| self.used(id)).collect::<Result<Vec<_>, _>>()?;
        let results = node.outputs.iter().map(|&id| self.known(id)).collect::<Result<Vec<_>, _>>()?;
        let view_width = results.first().map(|desc| desc.width());
        let shapes = output_shapes(&node.op, &inputs, self.weights, view_width)?;
        if shapes.len() != results.len() {
            return Err(Fault::Results { expected: shapes.len(), found: results.len() });
        }
        for (shape, desc) in shapes.iter().zip(results) {
            if desc.dims != shape {
                return Err(Fault::Shape {
                    what: format!("result {}", desc.name),
                    expected: shape_text(shape[0], shape[1].times),
                    found: desc.to_string(),
                });
            }
        }
        self.kv_order(node)?;
        node.outputs.iter().try_for_each(|&id| self.define(id))
    }

    fn kv_order(&mut self, node: &'a Node) -> Result<(), Fault> {
        match &node.op {
            Op::Rope { rope, .. } => {
                self.rotated.insert(node.outputs[0], rope);
                Ok(())
            }
            Op::KvStore { layer, kv_heads, k_dim, v_dim } => {
                let rope = self.rotated.get(&node.inputs[0]).copied();
                self.store(*layer, Stored { by: &node.name, geometry: [*kv_heads, *k_dim, *v_dim], rope })
            }
            Op::RopeStore(spec) => {
                let geometry = [spec.kv_heads, spec.k_dim, spec.v_dim];
                self.store(spec.layer, Stored { by: &node.name, geometry, rope: Some(&spec.rope) })
            }
            Op::Attention(spec) => {
                let asked = [spec.kv_heads, spec.k_dim, spec.v_dim];
                match self.stored.get(&spec.layer) {
                    None => Err(Fault::KvNotStored { layer: spec.layer }),
                    Some(stored) if stored.geometry != asked => Err(Fault::Shape {
                        what: format!("cache of layer {} [kv_heads, k_dim, v_dim]", spec.layer),
                        expected: format!("{asked:?}"),
                        found: format!("{:?} by {}", stored.geometry, stored.by),
                    }),
                    Some(stored) if stored.rope != spec.rope.as_ref() => {
                        Err(Fault::OtherRotation { store: stored.by.to_owned() })
                    }
                    Some(_) => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn store(&mut self, layer: u32, stored: Stored<'a>) -> Result<(), Fault> {
        match self.stored.insert(layer, stored) {
            None => Ok(()),
            Some(first) => Err(Fault::KvStoredTwice { layer, first: first.by.to_owned() }),
        }
    }
}
