//! How a step's index space is split between workers.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

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
pub(crate) struct ChunkCounter {
    next: AtomicUsize,
    /// What is taken of each worker's share, where chunks are claimed by share.
    shares: Box<[Share]>,
}

/// How much of a worker's share is taken: from its front in the low half, from its back in the high
/// one. Each is on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Share(AtomicU64);

impl ChunkCounter {
    /// For claims by share of so many workers.
    pub(crate) fn with_shares(workers: usize) -> ChunkCounter {
        let shares = (0..workers).map(|_| Share::default()).collect();
        ChunkCounter { next: AtomicUsize::new(0), shares }
    }

    /// Bytes of the shares.
    pub(crate) fn share_bytes(workers: usize) -> u64 {
        (workers * size_of::<Share>()) as u64
    }

    /// Starts over. Only between two barriers that separate it from every claim.
    pub(crate) fn reset(&self) {
        self.next.store(0, Ordering::Relaxed);
        self.shares.iter().for_each(|share| share.0.store(0, Ordering::Relaxed));
    }

    /// The next chunk of at most `size` of `0..n`, or `None` when all are claimed.
    pub(crate) fn claim(&self, n: usize, size: usize) -> Option<Range<usize>> {
        let start = self.next.fetch_add(size, Ordering::Relaxed);
        (start < n).then(|| start..n.min(start + size))
    }

    /// Neighbouring chunks of `0..n` from the worker's own share in order, half of what is left of
    /// it at a time; then from the ends of the others' shares. `None` when all are claimed. Memory
    /// that chunks read in order streams so into one worker.
    pub(crate) fn claim_near(&self, worker: Worker, n: usize) -> Option<Range<usize>> {
        if self.shares.len() < worker.count {
            return self.claim(n, 1);
        }
        (0..worker.count).find_map(|step| {
            let owner = Worker { index: (worker.index + step) % worker.count, ..worker };
            self.shares[owner.index].take(owner.share(n), step == 0)
        })
    }
}

impl Share {
    /// Half of what is left of a share, from its front or its back.
    fn take(&self, share: Range<usize>, from_front: bool) -> Option<Range<usize>> {
        let mut taken = self.0.load(Ordering::Relaxed);
        loop {
            let (front, back) = ((taken & 0xffff_ffff) as usize, (taken >> 32) as usize);
            let left = share.len() - front - back;
            let count = left.div_ceil(2);
            if count == 0 {
                return None;
            }
            let more = if from_front { count as u64 } else { (count as u64) << 32 };
            match self.0.compare_exchange_weak(taken, taken + more, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) if from_front => return Some(share.start + front..share.start + front + count),
                Ok(_) => return Some(share.end - back - count..share.end - back),
                Err(now) => taken = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_is_claimed_once_whoever_hurries() {
        for (workers, n) in [(1, 7), (2, 0), (2, 1), (2, 33), (3, 32), (5, 100), (8, 3)] {
            let counter = ChunkCounter::with_shares(workers);
            for hurried in 0..workers + 1 {
                counter.reset();
                let seen: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
                let work = |index: usize| {
                    let worker = Worker { index, count: workers };
                    while let Some(chunks) = counter.claim_near(worker, n) {
                        assert!(!chunks.is_empty());
                        for chunk in chunks {
                            seen[chunk].fetch_add(1, Ordering::Relaxed);
                        }
                    }
                };
                // One alone takes all of it, the last time all run at once.
                if hurried < workers {
                    work(hurried);
                }
                std::thread::scope(|scope| {
                    (0..workers).for_each(|index| {
                        drop(scope.spawn({
                            let work = &work;
                            move || work(index)
                        }))
                    });
                });
                assert!(seen.iter().all(|seen| seen.load(Ordering::Relaxed) == 1), "{workers} {n}");
            }
        }
    }

    #[test]
    fn own_chunks_come_first_and_in_order() {
        let counter = ChunkCounter::with_shares(2);
        let [first, second] = [0, 1].map(|index| Worker { index, count: 2 });
        assert_eq!(counter.claim_near(first, 16), Some(0..4));
        assert_eq!(counter.claim_near(second, 16), Some(8..12));
        assert_eq!(counter.claim_near(first, 16), Some(4..6));
        for rest in [6..7, 7..8] {
            assert_eq!(counter.claim_near(first, 16), Some(rest));
        }
        // Then the back half of what the other has left.
        assert_eq!(counter.claim_near(first, 16), Some(14..16));
        assert_eq!(counter.claim_near(second, 16), Some(12..13));
    }
}
