//! A pool of threads that run one job at a time, all of them together.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::PoisonError;

use super::float_mode::DefaultFloatMode;
use super::sync::{
    Arc, AtomicUsize, Builder, Condvar, IDLE_SPINS, JoinHandle, Mutex, MutexGuard, Ordering, ThreadId,
    current, spin_loop, yield_now,
};
use super::turns::Turns;
use super::{Barrier, Worker};

/// The threads that compute. Engines of one machine share a pool; their jobs run one after another.
///
/// A job that runs another job on the same pool, or a child process made by `fork`, has no helpers
/// to wait for: there the job runs on the calling thread alone, with the same results.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
    turns: Turns,
    /// The thread whose job runs now.
    caller: Mutex<Option<ThreadId>>,
    /// The process that has the helpers.
    process: u32,
}

/// A job as its helpers see it: a call that is alive until the last of them has reported back.
#[derive(Clone, Copy)]
struct Job(*const (dyn Fn(Worker) + Sync));

// SAFETY: the closure is `Sync`, and `Pool::run` does not return before every helper is done with
// it.
unsafe impl Send for Job {}

struct State {
    job: Option<Job>,
    stop: bool,
    sleeping: usize,
}

struct Shared {
    workers: usize,
    barrier: Barrier,
    /// Counts jobs; a helper runs a job when the count moves.
    epoch: AtomicUsize,
    /// Helpers that have not finished the current job.
    running: AtomicUsize,
    state: Mutex<State>,
    wake: Condvar,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").field("workers", &self.workers).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// A pool of `threads` workers; the thread that runs a job is one of them.
    ///
    /// # Errors
    /// The operating system refused a thread.
    pub fn new(threads: usize) -> std::io::Result<Pool> {
        let workers = threads.max(1);
        let shared = Arc::new(Shared {
            workers,
            barrier: Barrier::new(workers),
            epoch: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            state: Mutex::new(State { job: None, stop: false, sleeping: 0 }),
            wake: Condvar::new(),
            panic: Mutex::new(None),
        });
        let mut pool = Pool {
            shared,
            helpers: Vec::with_capacity(workers - 1),
            turns: Turns::new(),
            caller: Mutex::new(None),
            process: std::process::id(),
        };
        for index in 1..workers {
            let shared = Arc::clone(&pool.shared);
            let body = move || shared.serve(Worker { index, count: shared.workers });
            pool.helpers.push(Builder::new().name(format!("minfer-{index}")).spawn(body)?);
        }
        Ok(pool)
    }

    /// Workers of every job.
    pub fn threads(&self) -> usize {
        self.shared.workers
    }

    /// Runs `job` on every worker at once and returns when all are done. Kernels find the default
    /// floating-point mode.
    ///
    /// # Panics
    /// With the panic of the first worker that panicked; the pool stays usable.
    pub(crate) fn run(&self, job: &(dyn Fn(Worker, &Barrier) + Sync)) {
        if self.has_no_helpers_here() {
            let _mode = DefaultFloatMode::set();
            return job(Worker { index: 0, count: 1 }, &Barrier::new(1));
        }
        let turn = self.turns.take();
        *lock(&self.caller) = Some(current().id());
        let barrier = &self.shared.barrier;
        let guarded = |worker: Worker| {
            let _mode = DefaultFloatMode::set();
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| job(worker, barrier))) {
                self.shared.keep_first(payload);
                barrier.break_open();
            }
        };
        self.shared.start(&guarded);
        guarded(Worker { index: 0, count: self.shared.workers });
        self.shared.wait_for_helpers();
        *lock(&self.caller) = None;
        let panic = lock(&self.shared.panic).take();
        if let Some(payload) = panic {
            barrier.reset();
            drop(turn);
            resume_unwind(payload);
        }
    }

    /// Whether this thread is in a job of this pool already, or in a child process: `fork` copies
    /// the calling thread alone, and locks as the other threads left them.
    fn has_no_helpers_here(&self) -> bool {
        if self.process != std::process::id() {
            return true;
        }
        let me = current().id();
        self.helpers.iter().any(|helper| helper.thread().id() == me) || *lock(&self.caller) == Some(me)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // The threads do not exist in this process.
            self.helpers.drain(..).for_each(std::mem::forget);
            return;
        }
        lock(&self.shared.state).stop = true;
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        self.shared.wake.notify_all();
        for helper in self.helpers.drain(..) {
            // A helper catches every panic of a job, so it ends in order.
            let _ = helper.join();
        }
    }
}

impl Shared {
    /// Keeps what the first worker panicked with. That of another one is dropped here, where a drop
    /// that panics too cannot end the worker before it has reported back.
    fn keep_first(&self, payload: Box<dyn Any + Send>) {
        let mut first = lock(&self.panic);
        if first.is_none() {
            *first = Some(payload);
            return;
        }
        drop(first);
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(payload);
        }
    }

    fn start(&self, job: &(dyn Fn(Worker) + Sync)) {
        if self.workers == 1 {
            return;
        }
        // SAFETY: only the lifetime is erased; `Pool::run` waits for every helper before the
        // closure goes away.
        let job: &'static (dyn Fn(Worker) + Sync) = unsafe { std::mem::transmute(job) };
        let mut state = lock(&self.state);
        state.job = Some(Job(job));
        self.running.store(self.workers - 1, Ordering::Release);
        self.epoch.fetch_add(1, Ordering::SeqCst);
        let asleep = state.sleeping > 0;
        drop(state);
        if asleep {
            self.wake.notify_all();
        }
    }

    fn wait_for_helpers(&self) {
        let mut polls = 0u32;
        while self.running.load(Ordering::Acquire) > 0 {
            polls += 1;
            if polls < IDLE_SPINS { spin_loop() } else { yield_now() }
        }
    }

    fn serve(&self, worker: Worker) {
        let mut seen = 0;
        while let Some(job) = self.next_job(&mut seen) {
            // SAFETY: the closure outlives `running > 0`, which this helper ends below.
            unsafe { (*job.0)(worker) };
            self.running.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// The next job, or `None` when the pool ends.
    fn next_job(&self, seen: &mut usize) -> Option<Job> {
        for _ in 0..IDLE_SPINS {
            if self.epoch.load(Ordering::Acquire) != *seen {
                break;
            }
            spin_loop();
        }
        let mut state = lock(&self.state);
        while self.epoch.load(Ordering::SeqCst) == *seen && !state.stop {
            state.sleeping += 1;
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.sleeping -= 1;
        }
        *seen = self.epoch.load(Ordering::SeqCst);
        if state.stop { None } else { state.job }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn every_worker_runs_every_job_and_barriers_order_them() {
        for threads in [1, 2, 3, 5] {
            let pool = Pool::new(threads).expect("threads");
            for round in 0..200 {
                let counts: Vec<AtomicUsize> = (0..4).map(|_| AtomicUsize::new(0)).collect();
                pool.run(&|worker, barrier| {
                    assert_eq!(worker.count, threads);
                    for (step, count) in counts.iter().enumerate() {
                        count.fetch_add(1, Ordering::Relaxed);
                        barrier.wait();
                        assert_eq!(count.load(Ordering::Relaxed), threads, "round {round}, step {step}");
                    }
                });
            }
        }
    }

    #[test]
    fn callers_that_want_it_all_get_equal_shares() {
        const JOBS: usize = 50;
        let pool = Pool::new(2).expect("threads");
        let order = std::sync::Mutex::new(Vec::new());
        let left = [JOBS; 2].map(AtomicUsize::new);
        std::thread::scope(|scope| {
            for caller in 0..2 {
                let (pool, order, left) = (&pool, &order, &left);
                scope.spawn(move || {
                    for _ in 0..JOBS {
                        pool.run(&|worker, _| {
                            if worker.index == 0 {
                                // Not before the other caller stands behind this one, or is done.
                                while pool.turns.present() < 2 && left[1 - caller].load(Ordering::Acquire) > 0
                                {
                                    std::thread::yield_now();
                                }
                                std::thread::sleep(Duration::from_millis(1));
                                order.lock().expect("no panic").push(caller);
                            }
                        });
                        left[caller].fetch_sub(1, Ordering::Release);
                    }
                });
            }
        });
        let order = order.into_inner().expect("no panic");
        assert_eq!(order.len(), 2 * JOBS);
        // The first jobs of the one that ends first are not far ahead of the other's.
        let last = order.iter().rposition(|&caller| caller != order[2 * JOBS - 1]).expect("two callers");
        assert!(last >= JOBS + JOBS / 2, "{order:?}");
    }

    #[test]
    fn a_panic_of_any_worker_reaches_the_caller_and_the_pool_goes_on() {
        let pool = Pool::new(3).expect("threads");
        for broken in 0..3 {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.run(&|worker, barrier| {
                    barrier.wait();
                    assert_ne!(worker.index, broken, "planned");
                    barrier.wait();
                });
            }));
            assert!(outcome.is_err());
            let done = AtomicUsize::new(0);
            pool.run(&|_, barrier| {
                barrier.wait();
                done.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(done.into_inner(), 3);
        }
    }

    #[test]
    fn a_pool_that_slept_wakes_again() {
        let pool = Pool::new(2).expect("threads");
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            pool.run(&|worker, barrier| {
                if worker.index == 1 {
                    std::thread::sleep(std::time::Duration::from_millis(3));
                }
                barrier.wait();
            });
        }
    }

    /// Panics when it is dropped.
    struct Grenade;

    impl Drop for Grenade {
        fn drop(&mut self) {
            std::panic::panic_any("a payload's drop");
        }
    }

    #[test]
    fn a_payload_that_panics_when_it_is_dropped_does_not_end_a_worker() {
        let pool = Pool::new(3).expect("threads");
        for _ in 0..20 {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.run(&|_, _| std::panic::panic_any(Grenade));
            }));
            std::mem::forget(outcome.expect_err("all workers panicked"));
            let done = AtomicUsize::new(0);
            pool.run(&|_, _| _ = done.fetch_add(1, Ordering::Relaxed));
            assert_eq!(done.into_inner(), 3);
        }
    }

    #[test]
    fn a_job_inside_a_job_runs_on_its_thread_alone() {
        let pool = Pool::new(3).expect("threads");
        let inner = AtomicUsize::new(0);
        pool.run(&|_, barrier| {
            barrier.wait();
            pool.run(&|worker, barrier| {
                assert_eq!((worker.index, worker.count), (0, 1));
                barrier.wait();
                inner.fetch_add(1, Ordering::Relaxed);
            });
            barrier.wait();
        });
        assert_eq!(inner.into_inner(), 3);
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn a_forked_child_computes_alone() {
        let pool = Pool::new(3).expect("threads");
        pool.run(&|_, barrier| barrier.wait());
        // SAFETY: the child runs the pool and ends with `_exit`; it neither returns into the test
        // harness nor takes a lock that another thread may have held.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let done = AtomicUsize::new(0);
            pool.run(&|worker, _| _ = done.fetch_add(worker.count, Ordering::Relaxed));
            drop(pool);
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(i32::from(done.into_inner() != 1)) };
        }
        assert!(child > 0, "fork failed");
        let (start, mut status) = (Instant::now(), -1);
        // SAFETY: `status` is written by the call; the child is ours.
        while unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } == 0 {
            if start.elapsed() > Duration::from_secs(20) {
                // SAFETY: ends the child that was made above.
                unsafe { libc::kill(child, libc::SIGKILL) };
                panic!("the child waits for threads that it does not have");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(status, 0);
        pool.run(&|_, barrier| barrier.wait());
    }
}
