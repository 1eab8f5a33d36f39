//! A barrier between steps: spins briefly, then sleeps, so that an oversubscribed machine does not crawl.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Polls before a waiter goes to sleep: some tens of microseconds.
const SPINS: u32 = 4096;

/// Where all workers of a job meet. Reusable; a worker that panics breaks it, and every waiter leaves with a panic of its own.
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
            self.generation.store(generation.wrapping_add(1), Ordering::SeqCst);
            self.wake_sleepers();
        } else {
            self.wait_for_change(generation);
        }
        assert!(!self.broken.load(Ordering::Acquire), "another worker of this step panicked");
    }

    /// Lets every waiter, now and later, leave with a panic until [`reset`](Barrier::reset).
    pub(crate) fn break_open(&self) {
        self.broken.store(true, Ordering::SeqCst);
        self.wake_sleepers();
    }

    /// Makes a broken barrier whole. Only while no worker is inside.
    pub(crate) fn reset(&self) {
        self.arrived.store(0, Ordering::Relaxed);
        self.broken.store(false, Ordering::Release);
    }

    fn is_open(&self, generation: usize) -> bool {
        self.generation.load(Ordering::SeqCst) != generation || self.broken.load(Ordering::SeqCst)
    }

    fn wait_for_change(&self, generation: usize) {
        for _ in 0..SPINS {
            if self.is_open(generation) {
                return;
            }
            std::hint::spin_loop();
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // Announced before the last look, and the opener looks for sleepers after opening: one of the two sees the other.
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while !self.is_open(generation) {
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    fn wake_sleepers(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.wake.notify_all();
        }
    }
}
