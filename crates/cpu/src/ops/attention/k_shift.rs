//! The context shift: attention over K rows that were rotated at another position than they have
//! now.
//!
//! After rows were removed, a row that remains was rotated at its position plus a rope offset. Its
//! K is not rewritten. Instead the query is rotated by the same offset: a score depends on the
//! difference of two positions alone. `AttentionSpec::rope` says by which angles.
//!
//! A removal moves no rows: the block table becomes runs of rows, each with its rope offset, and a
//! query is rotated once for each distinct offset. Loading a model reckons with `most_rope_offsets`
//! of them for each sequence; a removal or a session file that would make more is refused. Tiles
//! stay aligned to the position that a row has now.

use minfer_graph::{Batch, BlockTable, RopeSpec};

use crate::ops::rope::{Rotation, fill_row, table_floats};

/// The distinct rope offsets of a batch and, for each rotation, their angles. Kept from batch to
/// batch while the offsets stay.
#[derive(Debug, Default)]
pub(crate) struct KShiftAngles {
    /// Ascending, without 0.
    offsets: Vec<u32>,
    wanted: Vec<u32>,
    /// For each rotation cosines and sines as [`fill_row`] leaves them.
    tables: Vec<Vec<f32>>,
}

/// By which angles queries are rotated, for one rotation of K.
#[derive(Clone, Copy)]
pub(crate) struct KShift<'a> {
    /// Ascending, without 0.
    pub(crate) offsets: &'a [u32],
    /// A row of angles for each offset.
    pub(crate) rotation: Rotation<'a>,
}

impl KShiftAngles {
    /// Angles of every offset of a batch for some rotations, which have no magnitude.
    pub(crate) fn rebuild(&mut self, rotations: &[RopeSpec], batch: &Batch<'_>) {
        self.wanted.clear();
        for table in batch.kv.iter().flat_map(|group| group.block_tables) {
            if let BlockTable::Shifted(runs) = table {
                self.wanted.extend(runs.iter().map(|run| run.rope_offset).filter(|&offset| offset > 0));
            }
        }
        self.wanted.sort_unstable();
        self.wanted.dedup();
        if self.wanted == self.offsets && self.tables.len() == rotations.len() {
            return;
        }
        self.offsets.clone_from(&self.wanted);
        self.tables.resize_with(rotations.len(), Vec::new);
        for (table, rotation) in self.tables.iter_mut().zip(rotations) {
            table.resize(table_floats(rotation, self.offsets.len()), 0.0);
            let rows = table.chunks_exact_mut(table_floats(rotation, 1).max(1));
            rows.zip(&self.offsets).for_each(|(row, &offset)| fill_row(rotation, offset, row));
        }
    }

    /// The offsets with the table of each rotation.
    pub(crate) fn parts(&mut self) -> (&[u32], &mut [Vec<f32>]) {
        (&self.offsets, &mut self.tables)
    }
}

impl KShift<'_> {
    /// The row of angles of an offset.
    pub(super) fn row(&self, offset: u32) -> usize {
        self.offsets.binary_search(&offset).expect("the angles of every offset of the batch were made")
    }
}
