//! The synchronisation primitives of the barrier and the pool.
//!
//! `crates/cpu/loom` compiles `barrier.rs`, `pool.rs` and `turns.rs` a second time with loom's
//! primitives under the names of this module, and checks every interleaving of a few threads.

pub(super) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
pub(super) use std::sync::{Arc, Condvar, Mutex, MutexGuard};
pub(super) use std::thread::{Builder, JoinHandle, ThreadId, current, yield_now};

pub(super) use std::hint::spin_loop;

/// Polls of a worker at a barrier before it sleeps: tens of microseconds.
pub(super) const BARRIER_SPINS: u32 = 4096;

/// Polls of an idle thread before it sleeps: about the time between two forward passes of a decode.
pub(super) const IDLE_SPINS: u32 = 16384;

/// Time since some moment.
pub(super) fn time() -> std::time::Duration {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed()
}
