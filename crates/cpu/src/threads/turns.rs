//! Turns at the pool: engines that share it get equal shares of its time, however long their jobs
//! are.
//!
//! Of those that wait the one that has used the pool least comes first. One that is between two
//! jobs, and has used less, is waited for a moment: otherwise an engine with short jobs would get one
//! of them for each long one of another's.

use std::sync::PoisonError;
use std::time::Duration;

use super::sync::{Condvar, Mutex, MutexGuard, ThreadId, current, time};

/// So long a caller may be between two jobs before its turn passes to others.
const GRACE: Duration = Duration::from_micros(500);
/// A caller is waited for where it is behind by more than this.
const SLACK: Duration = Duration::from_millis(1);
/// A caller that has not come back for so long has no claim to what it missed.
const ABSENT: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Turns {
    queue: Mutex<Queue>,
    called: Condvar,
}

impl Turns {
    pub(super) fn new() -> Turns {
        Turns { queue: Mutex::new(Queue::default()), called: Condvar::new() }
    }

    /// Waits for a turn, which ends with the guard.
    pub(super) fn take(&self) -> Turn<'_> {
        let me = current().id();
        let mut queue = self.lock();
        queue.enter(me, time());
        loop {
            match queue.next(time()) {
                Next::Caller(caller) if caller == me => break,
                Next::Pause(pause) => {
                    let waited = self.called.wait_timeout(queue, pause);
                    queue = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                Next::Caller(_) | Next::Nobody => {
                    queue = self.called.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        queue.start(me);
        Turn { turns: self, caller: me, started: time() }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Callers that wait or run.
    #[cfg(test)]
    pub(super) fn present(&self) -> usize {
        let queue = self.lock();
        queue
            .callers
            .iter()
            .filter(|caller| caller.waits.is_some() || queue.runs == Some(caller.thread))
            .count()
    }
}

/// A turn at the pool.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    caller: ThreadId,
    started: Duration,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let now = time();
        self.turns.lock().end(self.caller, now.saturating_sub(self.started), now);
        self.turns.called.notify_all();
    }
}

/// Who waits, and who has used how much.
#[derive(Debug, Default)]
struct Queue {
    runs: Option<ThreadId>,
    callers: Vec<Caller>,
    /// Counts arrivals.
    arrivals: u64,
}

#[derive(Debug)]
struct Caller {
    thread: ThreadId,
    /// Time that it has had, or was given as its start.
    used: Duration,
    /// Its arrival, where it waits.
    waits: Option<u64>,
    /// The end of its last turn.
    left: Option<Duration>,
}

/// Whose turn it is.
#[derive(Debug, PartialEq)]
enum Next {
    Caller(ThreadId),
    /// Nobody's for so long: somebody may come back.
    Pause(Duration),
    /// A turn runs.
    Nobody,
}

impl Queue {
    fn enter(&mut self, thread: ThreadId, now: Duration) {
        let runs = self.runs;
        let is_there = |caller: &Caller| {
            let left = caller.left.is_some_and(|left| now.saturating_sub(left) < ABSENT);
            caller.waits.is_some() || left || runs == Some(caller.thread)
        };
        self.callers.retain(is_there);
        self.arrivals += 1;
        let waits = Some(self.arrivals);
        match self.callers.iter_mut().find(|caller| caller.thread == thread) {
            Some(caller) => caller.waits = waits,
            None => {
                let used = self.callers.iter().map(|caller| caller.used).min().unwrap_or_default();
                self.callers.push(Caller { thread, used, waits, left: None });
            }
        }
    }

    fn next(&self, now: Duration) -> Next {
        if self.runs.is_some() {
            return Next::Nobody;
        }
        let waiting = self.callers.iter().filter(|caller| caller.waits.is_some());
        let Some(first) = waiting.min_by_key(|caller| (caller.used, caller.waits)) else {
            return Next::Nobody;
        };
        let behind =
            self.callers.iter().filter(|caller| caller.waits.is_none() && caller.used + SLACK < first.used);
        let pauses = behind.filter_map(|caller| GRACE.checked_sub(now.saturating_sub(caller.left?)));
        match pauses.max().filter(|pause| !pause.is_zero()) {
            Some(pause) => Next::Pause(pause),
            None => Next::Caller(first.thread),
        }
    }

    fn start(&mut self, thread: ThreadId) {
        self.runs = Some(thread);
        self.callers
            .iter_mut()
            .filter(|caller| caller.thread == thread)
            .for_each(|caller| caller.waits = None);
    }

    fn end(&mut self, thread: ThreadId, took: Duration, now: Duration) {
        self.runs = None;
        for caller in self.callers.iter_mut().filter(|caller| caller.thread == thread) {
            caller.used += took;
            caller.left = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads<const N: usize>() -> [ThreadId; N] {
        [(); N].map(|()| std::thread::spawn(|| current().id()).join().expect("a thread"))
    }

    /// Callers that take `job` microseconds each time and come back `gap` later, on a clock of the
    /// test's own; the microseconds that each had after `time`.
    fn simulate<const N: usize>(callers: [(u64, u64); N], time: u64) -> [u64; N] {
        let (ids, at) = (threads::<N>(), Duration::from_micros);
        let mut queue = Queue::default();
        let (mut now, mut had, mut comes) = (0, [0; N], [0; N]);
        while now < time {
            let arrivals = |queue: &mut Queue, comes: &mut [u64; N], now: u64| {
                for (id, comes) in ids.iter().zip(comes).filter(|(_, comes)| **comes <= now) {
                    queue.enter(*id, at(std::mem::replace(comes, u64::MAX)));
                }
            };
            arrivals(&mut queue, &mut comes, now);
            match queue.next(at(now)) {
                Next::Caller(id) => {
                    let index = ids.iter().position(|&other| other == id).expect("a caller");
                    let job = callers[index].0;
                    queue.start(id);
                    now += job;
                    arrivals(&mut queue, &mut comes, now);
                    had[index] += job;
                    queue.end(id, at(job), at(now));
                    comes[index] = now + callers[index].1;
                }
                Next::Pause(_) | Next::Nobody => now += 10,
            }
        }
        had
    }

    #[test]
    fn shares_are_equal_whatever_the_length_of_jobs() {
        for jobs in [(4_000, 4_000), (4_000, 14_000), (1_000, 40_000), (100_000, 4_000)] {
            let had = simulate([(jobs.0, 150), (jobs.1, 300)], 3_000_000);
            let total: u64 = had.iter().sum();
            assert!(had.iter().all(|&had| had * 10 > total * 4), "{jobs:?}: {had:?}");
            assert!(total > 2_700_000, "the pool is not left idle: {jobs:?}: {had:?}");
        }
        let had = simulate([(1_000, 100), (5_000, 100), (9_000, 100)], 3_000_000);
        assert!(had.iter().all(|&had| had > 850_000), "{had:?}");
    }

    /// What the others cannot use is not kept free for them.
    #[test]
    fn a_caller_that_comes_seldom_takes_what_it_wants() {
        let had = simulate([(1_000, 9_000), (5_000, 100)], 3_000_000);
        assert!(had[0] > 200_000 && had[1] > 2_400_000, "{had:?}");
        assert!(simulate([(1_000, 100)], 1_000_000)[0] > 890_000, "alone it waits for nobody");
    }
}
