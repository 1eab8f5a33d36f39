//! A barrier between steps: spins briefly, then sleeps, so that an oversubscribed machine does not
//! crawl.

use std::sync::PoisonError;

use super::sync::{AtomicBool, AtomicUsize, BARRIER_SPINS, Condvar, Mutex, Ordering, fence, spin_loop};

/// Where all workers of a job meet. Reusable; a worker that panics breaks it, and every waiter
/// panics too.
#[derive(Debug)]
pub(crate) struct Barrier {
    workers: usize,
    arrived: AtomicUsize,
    generation: AtomicUsize,
    broken: AtomicBool,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Barrier {
    /// A barrier for `workers` workers.
    pub(crate) fn new(workers: usize) -> Barrier {
        Barrier {
            workers,
            arrived: AtomicUsize::new(0),
            generation: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            lock: Mutex::new(()),
            wake: Condvar::new(),
        }
    }

    /// Returns when all workers have called it. What each wrote before is visible to all after.
    ///
    /// # Panics
    /// The barrier was broken by a worker that panicked.
    pub(crate) fn wait(&self) {
        if self.workers == 1 {
            return;
        }
        let generation = self.generation.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.workers {
            self.arrived.store(0, Ordering::Relaxed);
            self.generation.store(generation.wrapping_add(1), Ordering::Release);
            self.wake_sleepers();
        } else {
            self.wait_for_change(generation);
        }
        assert!(!self.broken.load(Ordering::Acquire), "another worker of this step panicked");
    }

    /// Makes every waiter panic, now and later, until [`reset`](Barrier::reset).
    pub(crate) fn break_open(&self) {
        self.broken.store(true, Ordering::Release);
        self.wake_sleepers();
    }

    /// Makes a broken barrier whole. Only while no worker is inside.
    pub(crate) fn reset(&self) {
        self.arrived.store(0, Ordering::Relaxed);
        self.broken.store(false, Ordering::Release);
    }

    fn is_open(&self, generation: usize) -> bool {
        self.generation.load(Ordering::Acquire) != generation || self.broken.load(Ordering::Acquire)
    }

    fn wait_for_change(&self, generation: usize) {
        for _ in 0..BARRIER_SPINS {
            if self.is_open(generation) {
                return;
            }
            spin_loop();
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // The sleeper counts itself, then looks whether the barrier is open; the opener opens it,
        // then looks for sleepers. The two fences order each pair, so at least one sees the other's
        // write.
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while !self.is_open(generation) {
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    fn wake_sleepers(&self) {
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.wake.notify_all();
        }
    }
}
