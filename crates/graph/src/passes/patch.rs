//! A rewrite's change to a graph, and the graph with its index of producers and consumers.

use crate::{Graph, Node, NodeId, TensorDesc, ValueId};

/// A graph with its uses, as rewrites look at it.
#[derive(Debug)]
pub struct Site<'a> {
    /// The graph.
    pub graph: &'a Graph,
    consumers: Vec<Vec<NodeId>>,
    producers: Vec<Option<NodeId>>,
}

impl<'a> Site<'a> {
    /// Looks up producers and consumers of every value.
    pub fn new(graph: &'a Graph) -> Site<'a> {
        let mut consumers = vec![Vec::new(); graph.values.len()];
        let mut producers = vec![None; graph.values.len()];
        for (index, node) in graph.nodes.iter().enumerate() {
            let id = NodeId(index as u32);
            for input in &node.inputs {
                let list: &mut Vec<NodeId> = &mut consumers[input.0 as usize];
                if list.last() != Some(&id) {
                    list.push(id);
                }
            }
            for output in &node.outputs {
                producers[output.0 as usize] = Some(id);
            }
        }
        Site { graph, consumers, producers }
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> &'a Node {
        &self.graph.nodes[id.0 as usize]
    }

    /// The node that defines a value; none for an input.
    pub fn producer(&self, value: ValueId) -> Option<(NodeId, &'a Node)> {
        self.producers[value.0 as usize].map(|id| (id, self.node(id)))
    }

    /// Nodes that read a value, in order, each once.
    pub fn consumers(&self, value: ValueId) -> &[NodeId] {
        &self.consumers[value.0 as usize]
    }

    /// Whether the graph's user reads the value.
    pub fn is_output(&self, value: ValueId) -> bool {
        self.graph.outputs.contains(&value)
    }

    /// Whether `node` is all that ever reads the value.
    pub fn only_read_by(&self, value: ValueId, node: NodeId) -> bool {
        self.consumers(value) == [node] && !self.is_output(value)
    }

    /// The id that the `index`-th value of a patch will have.
    pub fn new_value(&self, index: usize) -> ValueId {
        ValueId((self.graph.values.len() + index) as u32)
    }
}

/// A change of a graph: nodes go, nodes come, and some uses read another value.
///
/// Results of removed nodes are either defined by an inserted node under the same id, or no longer
/// used.
#[derive(Debug, Clone, Default)]
pub struct Patch {
    /// Nodes that go.
    pub remove: Vec<NodeId>,
    /// New values; ids follow those of the graph ([`Site::new_value`]).
    pub values: Vec<TensorDesc>,
    /// New nodes, each before the node (of the old graph) that stands at the given id; in order.
    pub insert: Vec<(NodeId, Node)>,
    /// Uses of the first value read the second instead.
    pub replace: Vec<(ValueId, ValueId)>,
}

impl Patch {
    /// The graph after the change.
    pub fn apply(&self, graph: &Graph) -> Graph {
        let read = |id: &ValueId| self.replace.iter().find(|(from, _)| from == id).map_or(*id, |&(_, to)| to);
        let mut nodes = Vec::with_capacity(graph.nodes.len() + self.insert.len());
        for (index, node) in graph.nodes.iter().enumerate() {
            let id = NodeId(index as u32);
            nodes.extend(self.insert.iter().filter(|(at, _)| *at == id).map(|(_, node)| node.clone()));
            if !self.remove.contains(&id) {
                nodes.push(Node { inputs: node.inputs.iter().map(read).collect(), ..node.clone() });
            }
        }
        Graph {
            name: graph.name.clone(),
            values: graph.values.iter().chain(&self.values).cloned().collect(),
            nodes,
            inputs: graph.inputs.clone(),
            outputs: graph.outputs.iter().map(read).collect(),
        }
    }
}

impl Graph {
    /// Takes values that no node, input or output names out of the table and renumbers the rest.
    pub fn drop_unused_values(&mut self) {
        let mut used = vec![false; self.values.len()];
        let named = self.nodes.iter().flat_map(|node| node.inputs.iter().chain(&node.outputs));
        for id in named.chain(&self.inputs).chain(&self.outputs) {
            used[id.0 as usize] = true;
        }
        let mut next = 0;
        let renumbered: Vec<ValueId> = used
            .iter()
            .map(|&used| {
                let id = ValueId(next);
                next += u32::from(used);
                id
            })
            .collect();
        let mut keep = used.iter();
        self.values.retain(|_| *keep.next().expect("one flag for each value"));
        let ids = self.nodes.iter_mut().flat_map(|node| node.inputs.iter_mut().chain(&mut node.outputs));
        for id in ids.chain(&mut self.inputs).chain(&mut self.outputs) {
            *id = renumbered[id.0 as usize];
        }
    }
}
