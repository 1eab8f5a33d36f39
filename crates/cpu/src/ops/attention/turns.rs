//! Angles for rows that removals have moved: K was rotated at its position plus a rope offset, so queries are turned on by the
//! same offset, and only the difference of positions counts.

use minfer_graph::{Batch, BlockTable, RopeSpec};

use crate::ops::rope::{Rotation, fill_row, table_floats};

/// The distinct rope offsets of a step and, for each rotation, their angles. Kept from step to step while the offsets stay.
#[derive(Debug, Default)]
pub(crate) struct OffsetAngles {
    /// Ascending, without 0.
    offsets: Vec<u32>,
    wanted: Vec<u32>,
    /// For each rotation cosines and sines as [`fill_row`] leaves them.
    tables: Vec<Vec<f32>>,
}

/// How queries are turned on for one rotation of K.
#[derive(Clone, Copy)]
pub(crate) struct Turns<'a> {
    /// Ascending, without 0.
    pub(crate) offsets: &'a [u32],
    /// A row of angles for each offset.
    pub(crate) rotation: Rotation<'a>,
}

impl OffsetAngles {
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

impl Turns<'_> {
    /// The row of angles of an offset.
    pub(super) fn row(&self, offset: u32) -> usize {
        self.offsets.binary_search(&offset).expect("the angles of every offset of the step were made")
    }
}
