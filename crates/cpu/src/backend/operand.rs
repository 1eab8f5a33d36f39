//! Where a graph's values lie in memory, resolved when the graph is compiled.

use minfer_graph::plan::{Location, Plan};
use minfer_graph::{Extents, Graph, Symbol, ValueId};

use crate::threads::{Rows, SharedSlice};

/// Where a value lives and how many rows it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operand {
    place: Place,
    /// Offset of the first element, in elements.
    offset: usize,
    stride: usize,
    columns: usize,
    symbol: Symbol,
}

/// Which memory a value is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Workspace,
    External(usize),
}

impl Operand {
    /// The planned place of a value; `None` if the plan gives it none.
    pub(crate) fn of(graph: &Graph, plan: &Plan, id: ValueId) -> Option<Operand> {
        let desc = graph.value(id);
        let (place, offset, stride) = match plan.locations[id.0 as usize] {
            Location::Workspace { offset, row_stride } => {
                (Place::Workspace, (offset / 4) as usize, row_stride)
            }
            Location::External { index, offset, row_stride } => {
                (Place::External(index as usize), offset as usize, row_stride)
            }
            Location::Unused => return None,
        };
        let (columns, symbol) = (desc.width() as usize, desc.row_symbol());
        Some(Operand { place, offset, stride: stride as usize, columns, symbol })
    }

    /// The elements that it covers: which memory, the first one, the stride and the columns of its
    /// rows.
    pub(crate) fn extent(&self) -> (Place, usize, usize, usize) {
        (self.place, self.offset, self.stride, self.columns)
    }

    /// Elements of a row.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// What its rows count.
    pub(crate) fn symbol(&self) -> Symbol {
        self.symbol
    }
}

/// The memory of one run.
pub(crate) struct Memory<'a> {
    /// Values that live and die inside the graph.
    pub(crate) workspace: SharedSlice<'a, f32>,
    /// The graph's inputs, then its outputs.
    pub(crate) externals: Vec<SharedSlice<'a, f32>>,
    /// This step's extents.
    pub(crate) extents: Extents,
}

impl<'a> Memory<'a> {
    /// The rows of a value in this step.
    pub(crate) fn rows(&self, operand: &Operand) -> Rows<'a> {
        let memory = match operand.place {
            Place::Workspace => &self.workspace,
            Place::External(index) => &self.externals[index],
        };
        let rows = self.extents.of(operand.symbol) as usize;
        memory.matrix(operand.offset, operand.stride, rows, operand.columns)
    }
}
