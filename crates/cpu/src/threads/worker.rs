//! How a step's index space is split between workers.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One of the workers that walk a list of steps together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Worker {
    /// 0 .. count.
    pub(crate) index: usize,
    /// Workers in all.
    pub(crate) count: usize,
}

impl Worker {
    /// This worker's share of `0..n`: as equal as possible, in worker order.
    pub(crate) fn share(self, n: usize) -> Range<usize> {
        n * self.index / self.count..n * (self.index + 1) / self.count
    }
}

/// Chunks of an index space, claimed one by one, so that a worker that was held up does not hold up
/// the others. Who computes a chunk never changes its result.
#[derive(Debug, Default)]
pub(crate) struct ChunkCounter(AtomicUsize);

impl ChunkCounter {
    /// Starts over. Only between two barriers that separate it from every claim.
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// The next chunk of at most `size` of `0..n`, or `None` when all are claimed.
    pub(crate) fn claim(&self, n: usize, size: usize) -> Option<Range<usize>> {
        let start = self.0.fetch_add(size, Ordering::Relaxed);
        (start < n).then(|| start..n.min(start + size))
    }
}
