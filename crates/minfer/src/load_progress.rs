//! Progress reports while weights are loaded.

use std::sync::atomic::{AtomicU64, Ordering};

use minfer_graph::WeightId;
use minfer_graph::backend::{WeightError, WeightSource};

/// Progress of loading weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadProgress {
    /// Bytes of packed weights in memory so far.
    pub done: u64,
    /// Bytes of all packed weights.
    pub total: u64,
}

/// A weight source that reports progress when a weight has been packed.
pub(crate) struct Watched<'w, F> {
    weights: &'w dyn WeightSource,
    /// Bytes that the backend keeps of each weight.
    kept: &'w [u64],
    done: AtomicU64,
    report: &'w F,
}

impl<'w, F: Fn(LoadProgress) + Sync> Watched<'w, F> {
    pub(crate) fn new(weights: &'w dyn WeightSource, kept: &'w [u64], report: &'w F) -> Watched<'w, F> {
        Watched { weights, kept, done: AtomicU64::new(0), report }
    }
}

impl<F: Fn(LoadProgress) + Sync> WeightSource for Watched<'_, F> {
    fn stored_bytes(&self, id: WeightId) -> u64 {
        self.weights.stored_bytes(id)
    }

    fn read(&self, id: WeightId, offset: u64, target: &mut [u8]) -> Result<(), WeightError> {
        self.weights.read(id, offset, target)
    }

    fn taken(&self, id: WeightId) {
        self.weights.taken(id);
        let bytes = self.kept[id.0 as usize];
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        (self.report)(LoadProgress { done, total: self.kept.iter().sum() });
    }
}
