//! The memory plan: an offset for every value of a graph, made once for the largest batch.
//!
//! Values that share bytes form one allocation: a view lies inside its source, and an elementwise
//! result replaces an input that has no other reader. Allocations whose lifetimes do not overlap
//! share workspace. A node may therefore overwrite what an earlier node read, so a backend that
//! overlaps nodes must order such reads before such writes.

use crate::{Extents, Graph, Node, Op, ValueId};

/// Alignment of allocations in bytes.
pub const ALIGNMENT: u64 = 64;

/// Bytes of an element of a value: all are f32.
const ELEMENT_BYTES: u64 = 4;

/// Where a value lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// In the workspace: the first element is at `offset` bytes and rows are `row_stride` elements
    /// apart. A view shares its source's bytes.
    Workspace {
        /// Byte offset of the first element, a multiple of 64 but for views.
        offset: u64,
        /// Elements from one row to the next.
        row_stride: u32,
    },
    /// In buffer `index` of the run's externals (inputs, then outputs).
    External {
        /// Index among the externals.
        index: u32,
        /// Offset of the first element in elements, non-zero for views.
        offset: u32,
        /// Elements from one row to the next.
        row_stride: u32,
    },
    /// No one reads or writes it after rewriting.
    Unused,
}

/// The memory plan of one graph on one backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// One entry per value of the graph.
    pub locations: Vec<Location>,
    /// Bytes of workspace at the largest extents.
    pub workspace_bytes: u64,
    /// The extents it was made for.
    pub extents: Extents,
    /// Bytes of each external buffer, inputs then outputs. An output is read where its location
    /// says; a buffer of 0 bytes is not touched, for an output that lies in an input or in another
    /// output's buffer.
    pub external_bytes: Vec<u64>,
    /// Bytes of workspace if every value had memory of its own.
    pub naive_bytes: u64,
}

impl Plan {
    /// Plans a verified graph.
    ///
    /// Inputs are never overwritten, so a run can be repeated on them. An output is contiguous
    /// unless it is a view.
    ///
    /// # Panics
    /// The graph is not verified, or its values do not fit in 64-bit sizes.
    pub fn make(graph: &Graph, extents: Extents) -> Plan {
        let mut planner = Planner::new(graph);
        for (index, node) in graph.nodes.iter().enumerate() {
            planner.node(index, node);
        }
        planner.finish(extents)
    }
}

/// A run of bytes that one value, or several that share it, live in.
struct Allocation {
    /// Node that first writes it; 0 for an input.
    first: usize,
    /// Node that last reads it.
    last: usize,
    /// The value that it was made for; its width is the row stride.
    root: ValueId,
    /// Index among the externals.
    external: Option<usize>,
    /// Values in it, with their first column.
    members: Vec<(ValueId, u32)>,
}

struct Planner<'a> {
    graph: &'a Graph,
    /// The last node that names a value as an operand; the node count for a graph's output.
    last_use: Vec<usize>,
    allocations: Vec<Allocation>,
    /// Each value's allocation and first column.
    places: Vec<Option<(usize, u32)>>,
    naive: Vec<ValueId>,
}

impl<'a> Planner<'a> {
    fn new(graph: &'a Graph) -> Planner<'a> {
        let mut last_use = vec![0; graph.values.len()];
        for (index, node) in graph.nodes.iter().enumerate() {
            for input in &node.inputs {
                last_use[input.0 as usize] = index;
            }
        }
        for output in &graph.outputs {
            last_use[output.0 as usize] = graph.nodes.len();
        }
        let places = vec![None; graph.values.len()];
        let mut planner = Planner { graph, last_use, allocations: Vec::new(), places, naive: Vec::new() };
        for (index, &input) in graph.inputs.iter().enumerate() {
            planner.allocate(0, input, Some(index));
        }
        planner
    }

    fn node(&mut self, index: usize, node: &Node) {
        if let Op::View { offset } = node.op {
            let (allocation, column) = self.place(node.inputs[0]);
            self.join(allocation, node.outputs[0], column + offset);
            return;
        }
        let reused = match node.op.is_elementwise() {
            true => node.inputs.iter().find_map(|&input| self.replaceable(index, node, input)),
            false => None,
        };
        if let Some((allocation, column)) = reused {
            self.join(allocation, node.outputs[0], column);
            self.naive.push(node.outputs[0]);
            return;
        }
        for &output in &node.outputs {
            self.allocate(index, output, self.output_index(output));
            self.naive.push(output);
        }
    }

    /// The place of an operand that the node's result may take.
    fn replaceable(&self, index: usize, node: &Node, operand: ValueId) -> Option<(usize, u32)> {
        let (place, column) = self.place(operand);
        let allocation = &self.allocations[place];
        let (width, stride) = (self.width(operand), self.width(allocation.root));
        let output = node.outputs[0];
        let is_input = allocation.external.is_some_and(|external| external < self.graph.inputs.len());
        let whole = column == 0 && width == stride;
        if is_input || (self.output_index(output).is_some() && (!whole || allocation.external.is_some())) {
            return None;
        }
        let free = allocation.members.iter().all(|&(member, first)| {
            let apart = first + self.width(member) <= column || column + width <= first;
            let equal = first == column && self.width(member) == width;
            let read_now = node.inputs.contains(&member);
            apart || (self.last_use[member.0 as usize] <= index && (equal || !read_now))
        });
        free.then_some((place, column))
    }

    fn allocate(&mut self, first: usize, root: ValueId, external: Option<usize>) {
        let allocation = Allocation { first, last: first, root, external, members: Vec::new() };
        self.allocations.push(allocation);
        self.join(self.allocations.len() - 1, root, 0);
    }

    fn join(&mut self, index: usize, value: ValueId, column: u32) {
        let output = self.output_index(value);
        let allocation = &mut self.allocations[index];
        allocation.members.push((value, column));
        allocation.last = allocation.last.max(self.last_use[value.0 as usize]);
        allocation.external = allocation.external.or(output);
        self.places[value.0 as usize] = Some((index, column));
    }

    fn place(&self, value: ValueId) -> (usize, u32) {
        self.places[value.0 as usize].expect("a verified graph defines a value before it is used")
    }

    fn width(&self, value: ValueId) -> u32 {
        self.graph.value(value).width()
    }

    fn output_index(&self, value: ValueId) -> Option<usize> {
        let index = self.graph.outputs.iter().position(|&output| output == value)?;
        Some(self.graph.inputs.len() + index)
    }

    fn finish(self, extents: Extents) -> Plan {
        let bytes = |root: ValueId| {
            let elements = self.graph.value(root).elements(extents);
            elements.checked_mul(ELEMENT_BYTES).expect("a value of more than 64 bits of bytes")
        };
        let mut external_bytes = vec![0; self.graph.inputs.len() + self.graph.outputs.len()];
        let mut spans = Vec::new();
        for (index, allocation) in self.allocations.iter().enumerate() {
            let bytes = bytes(allocation.root);
            match allocation.external {
                Some(external) => external_bytes[external] = bytes,
                None => spans.push(Span {
                    allocation: index,
                    first: allocation.first,
                    last: allocation.last,
                    bytes: bytes.next_multiple_of(ALIGNMENT),
                }),
            }
        }
        let (offsets, workspace_bytes) = pack(spans, self.allocations.len());
        let locate = |&(index, column): &(usize, u32)| {
            let allocation = &self.allocations[index];
            let row_stride = self.width(allocation.root);
            match allocation.external {
                Some(external) => Location::External { index: external as u32, offset: column, row_stride },
                None => {
                    let offset = offsets[index] + u64::from(column) * ELEMENT_BYTES;
                    Location::Workspace { offset, row_stride }
                }
            }
        };
        let naive = self.naive.iter().filter(|&&value| self.output_index(value).is_none());
        Plan {
            locations: self.places.iter().map(|p| p.as_ref().map_or(Location::Unused, locate)).collect(),
            workspace_bytes,
            extents,
            external_bytes,
            naive_bytes: naive.map(|&value| bytes(value).next_multiple_of(ALIGNMENT)).sum(),
        }
    }
}

/// An allocation's lifetime, both ends included, and size.
struct Span {
    allocation: usize,
    first: usize,
    last: usize,
    bytes: u64,
}

/// Places the largest spans first, each at the lowest offset that no span alive at the same time
/// covers. Gives offsets by allocation and the total.
fn pack(mut spans: Vec<Span>, allocations: usize) -> (Vec<u64>, u64) {
    spans.sort_by_key(|span| (std::cmp::Reverse(span.bytes), span.first));
    let mut offsets = vec![0; allocations];
    let mut placed: Vec<(u64, &Span)> = Vec::new();
    let mut total = 0;
    for span in &spans {
        let mut offset = 0;
        for &(taken, other) in &placed {
            let alive = other.first <= span.last && span.first <= other.last;
            if alive && taken < offset + span.bytes && offset < taken + other.bytes {
                offset = taken + other.bytes;
            }
        }
        offsets[span.allocation] = offset;
        total = total.max(offset + span.bytes);
        let position = placed.partition_point(|&(taken, _)| taken <= offset);
        placed.insert(position, (offset, span));
    }
    (offsets, total)
}
