//! Where the values of a graph live: made once, at the largest extents.

use crate::Extents;

/// Where a value lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// In the workspace: the first element is at `offset` bytes and rows are `row_stride` elements apart. A view shares its
    /// source's bytes.
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
}
