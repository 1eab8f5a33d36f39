//! Scratch memory of a compiled graph: quantised activations, rope tables, partial attention.

use std::sync::{Mutex, MutexGuard, PoisonError};

use minfer_graph::{BackendError, Batch, Extents, KvSpec};

use super::buffer::HostBuffer;
use super::lower::Lowered;
use crate::ops::attention::{AttentionPlan, AttentionScratch, KShiftAngles};
use crate::ops::rope;
use crate::quantise::QuantisedRows;
use crate::threads::{SharedSlice, Worker};

/// Floats of partial states that let a long sequence's attention be split between workers.
const PARTIAL_FLOATS: usize = 1 << 18;

/// Memory of the backend beside the plan's workspace.
pub(super) struct Scratch {
    /// The 8-bit image.
    quantised: HostBuffer,
    /// Tables of angles, one for each distinct rotation.
    angles: Vec<HostBuffer>,
    /// Partial states of attention.
    partials: HostBuffer,
    /// One for each worker.
    attention: Vec<Mutex<AttentionScratch>>,
    /// One for each distinct shape of attention.
    plans: Vec<AttentionPlan>,
    /// Angles of rope offsets.
    k_shifts: KShiftAngles,
}

/// [`Scratch`] as workers share it.
pub(super) struct SharedScratch<'a> {
    pub(super) quantised: SharedSlice<'a, u32>,
    pub(super) angles: Vec<SharedSlice<'a, f32>>,
    pub(super) partials: SharedSlice<'a, f32>,
    attention: &'a [Mutex<AttentionScratch>],
    pub(super) plans: &'a [AttentionPlan],
    pub(super) rope_offsets: &'a [u32],
    pub(super) k_shifts: Vec<SharedSlice<'a, f32>>,
}

impl SharedScratch<'_> {
    /// A worker's own memory.
    pub(super) fn attention(&self, worker: Worker) -> MutexGuard<'_, AttentionScratch> {
        lock(&self.attention[worker.index])
    }
}

impl Scratch {
    /// Memory for the largest step.
    ///
    /// # Errors
    /// Memory was refused.
    pub(super) fn new(
        lowered: &Lowered,
        extents: Extents,
        kv: &KvSpec,
        workers: usize,
    ) -> Result<Scratch, BackendError> {
        let rows = extents.tokens.max(extents.rows) as usize;
        let operations: Vec<_> = lowered.attentions(kv).collect();
        let scratch = || AttentionScratch::new(operations.iter().copied());
        let angles = lowered.ropes.iter().map(|rope| {
            HostBuffer::new(4 * rope::table_floats(rope, extents.tokens as usize) as u64, "tables of angles")
        });
        let partials = if operations.is_empty() { 0 } else { PARTIAL_FLOATS };
        let words = QuantisedRows::words(rows, lowered.quantised_columns, lowered.quantised_terms);
        Ok(Scratch {
            quantised: HostBuffer::new(4 * words as u64, "quantised activations")?,
            angles: angles.collect::<Result<_, _>>()?,
            partials: HostBuffer::new(4 * partials as u64, "partial attention")?,
            attention: (0..workers).map(|_| Mutex::new(scratch())).collect(),
            plans: lowered.shapes.iter().map(|_| AttentionPlan::default()).collect(),
            k_shifts: KShiftAngles::default(),
        })
    }

    /// Bytes of memory that [`new`](Self::new) takes.
    pub(super) fn bytes_for(lowered: &Lowered, extents: Extents, kv: &KvSpec, workers: usize) -> u64 {
        let rows = extents.tokens.max(extents.rows) as usize;
        let attentions: Vec<_> = lowered.attentions(kv).collect();
        let partials = if attentions.is_empty() { 0 } else { PARTIAL_FLOATS };
        let angles = lowered.ropes.iter().map(|rope| rope::table_floats(rope, extents.tokens as usize));
        let words = QuantisedRows::words(rows, lowered.quantised_columns, lowered.quantised_terms)
            + partials
            + angles.sum::<usize>();
        // One worker's is small, and counts itself best.
        4 * words as u64 + workers as u64 * AttentionScratch::new(attentions).bytes()
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> u64 {
        let attention = self.attention.iter().map(|scratch| lock(scratch).bytes());
        let angles = self.angles.iter().map(HostBuffer::bytes);
        self.quantised.bytes() + self.partials.bytes() + attention.chain(angles).sum::<u64>()
    }

    /// Plans this step's attention.
    pub(super) fn plan(&mut self, lowered: &Lowered, batch: &Batch<'_>) {
        let workers = self.attention.len();
        for (plan, shape) in self.plans.iter_mut().zip(&lowered.shapes) {
            plan.rebuild(shape, batch, workers, PARTIAL_FLOATS);
        }
        self.k_shifts.rebuild(&lowered.k_shifts, batch);
    }

    /// The memory as workers share it.
    ///
    /// # Safety
    /// The promise of [`SharedSlice::share`] is kept by every user of the views.
    pub(super) unsafe fn shared(&mut self) -> SharedScratch<'_> {
        let (rope_offsets, k_shifts) = self.k_shifts.parts();
        // SAFETY: the promise is the caller's; the views are of memories that lie apart.
        let share = |memory| unsafe { SharedSlice::share(memory) };
        SharedScratch {
            // SAFETY: as above.
            quantised: unsafe { SharedSlice::share(self.quantised.words()) },
            angles: self.angles.iter_mut().map(|table| share(table.floats())).collect(),
            partials: share(self.partials.floats()),
            attention: &self.attention,
            plans: &self.plans,
            rope_offsets,
            k_shifts: k_shifts.iter_mut().map(|table| share(table)).collect(),
        }
    }
}

fn lock(scratch: &Mutex<AttentionScratch>) -> MutexGuard<'_, AttentionScratch> {
    // What a worker that panicked left behind is overwritten before it is read.
    scratch.lock().unwrap_or_else(PoisonError::into_inner)
}
