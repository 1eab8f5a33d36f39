//! Where the time of a step goes: for each kind of operation and each worker, the time that it
//! computed and the time that it waited at the barrier before.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Collects times of a backend that was given it. Measuring costs two readings of the clock for
/// each step and worker.
#[derive(Debug)]
pub struct Profiler {
    workers: Vec<Mutex<Times>>,
}

/// Time in the steps of one kind, over all workers and runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepTime {
    /// Steps that ran, counted by one worker.
    pub steps: u64,
    /// Time that workers computed, added up over workers.
    pub busy: Duration,
    /// Time that workers waited at the barrier before such a step, added up over workers.
    pub waiting: Duration,
}

type Times = BTreeMap<String, StepTime>;

impl Profiler {
    /// A profiler for a pool of this many threads.
    pub fn new(threads: usize) -> Profiler {
        Profiler { workers: (0..threads).map(|_| Mutex::default()).collect() }
    }

    /// Times since the last call, by kind of step.
    pub fn take(&self) -> BTreeMap<String, StepTime> {
        let mut all = Times::new();
        for (index, worker) in self.workers.iter().enumerate() {
            let times = std::mem::take(&mut *worker.lock().unwrap_or_else(PoisonError::into_inner));
            for (kind, time) in times {
                let sum = all.entry(kind).or_default();
                sum.steps += if index == 0 { time.steps } else { 0 };
                sum.busy += time.busy;
                sum.waiting += time.waiting;
            }
        }
        all
    }

    /// Adds the laps of one worker's run.
    pub(crate) fn add<'a>(&self, worker: usize, laps: impl Iterator<Item = (&'a str, Lap)>) {
        let Some(times) = self.workers.get(worker) else { return };
        let mut times = times.lock().unwrap_or_else(PoisonError::into_inner);
        for (kind, lap) in laps {
            if !times.contains_key(kind) {
                times.insert(kind.to_owned(), StepTime::default());
            }
            let Some(time) = times.get_mut(kind) else { continue };
            time.steps += 1;
            time.busy += lap.busy;
            time.waiting += lap.waiting;
        }
    }
}

/// One worker's time for one step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lap {
    pub(crate) busy: Duration,
    pub(crate) waiting: Duration,
}

/// A clock that is read between a worker's steps.
pub(crate) struct Laps {
    last: Instant,
}

impl Laps {
    pub(crate) fn start() -> Laps {
        Laps { last: Instant::now() }
    }

    /// Time since the last reading.
    pub(crate) fn lap(&mut self) -> Duration {
        let now = Instant::now();
        let lap = now - self.last;
        self.last = now;
        lap
    }
}
