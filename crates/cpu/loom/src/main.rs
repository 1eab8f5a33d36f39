//! The barrier and the pool of `minfer-cpu` under loom: every interleaving of two or three threads,
//! up to a number of preemptions, with every value that the memory model lets a load return.
//!
//! The files are the crate's own; only the primitives that they are built on are loom's. A model
//! fails with a panic where a thread waits for ever, where an access races, or where an assertion
//! does not hold.

#![allow(dead_code, unused_imports, reason = "models use a part of the files")]

#[path = "../../src/threads/barrier.rs"]
mod barrier;
#[path = "../../src/threads/pool.rs"]
mod pool;
#[path = "../../src/threads/turns.rs"]
mod turns;
#[path = "../../src/threads/worker.rs"]
mod worker;

mod float_mode {
    /// Arithmetic plays no part in a model.
    pub(crate) struct DefaultFloatMode;

    impl DefaultFloatMode {
        pub(crate) fn set() -> DefaultFloatMode {
            DefaultFloatMode
        }
    }
}

mod sync {
    //! `threads/sync.rs` with loom's primitives. One poll is enough to see what polling does.

    pub(super) use loom::hint::spin_loop;
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
    pub(super) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(super) use loom::thread::{Builder, JoinHandle, ThreadId, current, yield_now};

    pub(super) const BARRIER_SPINS: u32 = 1;
    pub(super) const IDLE_SPINS: u32 = 1;

    /// Time stands still: a model must do the same each time.
    pub(super) fn time() -> std::time::Duration {
        std::time::Duration::ZERO
    }
}

use std::panic::{AssertUnwindSafe, catch_unwind};

use barrier::Barrier;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use pool::Pool;
use worker::Worker;

/// Memory that workers share as rows: loom reports accesses that race.
struct Slots(Vec<UnsafeCell<usize>>);

// SAFETY: the models are what is checked; loom reports a race.
unsafe impl Sync for Slots {}
// SAFETY: as above.
unsafe impl Send for Slots {}

impl Slots {
    fn new(count: usize) -> Slots {
        Slots((0..count).map(|_| UnsafeCell::new(0)).collect())
    }

    fn set(&self, slot: usize, value: usize) {
        // SAFETY: loom reports an access that races.
        self.0[slot].with_mut(|place| unsafe { *place = value });
    }

    fn sum(&self) -> usize {
        // SAFETY: loom reports an access that races.
        self.0.iter().map(|slot| slot.with(|place| unsafe { *place })).sum()
    }
}

fn check(name: &str, preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let start = std::time::Instant::now();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(model);
    println!("{name}: no fault ({preemptions} preemptions, {:.1} s)", start.elapsed().as_secs_f64());
}

/// What is written before a barrier is read after it; with two rounds the barrier is used again.
fn barrier_orders(workers: usize, rounds: usize) {
    let shared = Arc::new((Barrier::new(workers), Slots::new(workers)));
    let work = move |index: usize, shared: &(Barrier, Slots)| {
        let (barrier, slots) = shared;
        for round in 1..=rounds {
            slots.set(index, round);
            barrier.wait();
            assert_eq!(slots.sum(), workers * round);
            barrier.wait();
        }
    };
    let threads: Vec<_> = (1..workers)
        .map(|index| {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || work(index, &shared))
        })
        .collect();
    work(0, &shared);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A waiter leaves a barrier that another worker breaks instead of arriving.
fn a_broken_barrier_lets_go() {
    let barrier = Arc::new(Barrier::new(2));
    let other = Arc::clone(&barrier);
    let thread = loom::thread::spawn(move || catch_unwind(AssertUnwindSafe(|| other.wait())).is_err());
    barrier.break_open();
    assert!(thread.join().unwrap());
}

/// Two jobs one after the other: each sees its own data, and the caller sees all that was written.
fn pool_runs_jobs(threads: usize) {
    let pool = Pool::new(threads).unwrap();
    for round in 1..=2 {
        let slots = Slots::new(threads);
        pool.run(&|worker, _| slots.set(worker.index, round));
        assert_eq!(slots.sum(), threads * round);
    }
}

/// A job with a barrier inside.
fn pool_with_a_barrier() {
    let pool = Pool::new(2).unwrap();
    let slots = Slots::new(2);
    pool.run(&|worker, barrier| {
        slots.set(worker.index, 1);
        barrier.wait();
        assert_eq!(slots.sum(), 2);
    });
}

/// Whichever worker panics, the caller gets the panic and the pool runs the next job.
fn pool_survives_a_panic(broken: usize) {
    let pool = Pool::new(2).unwrap();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        pool.run(&|worker, barrier| {
            assert_ne!(worker.index, broken);
            barrier.wait();
        });
    }));
    assert!(outcome.is_err());
    let slots = Slots::new(2);
    pool.run(&|worker, _| slots.set(worker.index, 1));
    assert_eq!(slots.sum(), 2);
}

/// Two callers take turns.
fn pool_with_two_callers() {
    let pool = Arc::new(Pool::new(2).unwrap());
    let other = Arc::clone(&pool);
    let job = |pool: &Pool| {
        let slots = Slots::new(2);
        pool.run(&|worker, _| slots.set(worker.index, 1));
        assert_eq!(slots.sum(), 2);
    };
    let thread = loom::thread::spawn(move || job(&other));
    job(&pool);
    thread.join().unwrap();
}

fn main() {
    // The panics are part of the models.
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string();
        if !text.contains("broken") && !text.contains("another worker") && !text.contains("left: ") {
            eprintln!("{text}");
        }
    }));
    check("barrier, 2 workers", 3, || barrier_orders(2, 2));
    check("barrier, 3 workers", 1, || barrier_orders(3, 1));
    check("a broken barrier", 3, a_broken_barrier_lets_go);
    check("pool, 2 workers", 2, || pool_runs_jobs(2));
    check("pool, 3 workers", 1, || pool_runs_jobs(3));
    check("pool with a barrier", 2, pool_with_a_barrier);
    check("pool, the caller panics", 2, || pool_survives_a_panic(0));
    check("pool, the helper panics", 2, || pool_survives_a_panic(1));
    check("pool, two callers", 2, pool_with_two_callers);
}
