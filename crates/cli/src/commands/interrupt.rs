//! Ctrl-C and requests to terminate, for commands that end in good order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::unregister;

/// How long an interrupted command waits for the engine, which hears of it between two forwards.
const GRACE: Duration = Duration::from_millis(300);

/// What has come since [`listen`](Interrupts::listen). A second signal ends the process at once.
pub(super) struct Interrupts {
    armed: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
    seen: Option<Instant>,
    /// What ends the process at a second signal.
    endings: Vec<SigId>,
}

impl Interrupts {
    /// From here on signals are counted and no longer end the process, but for the second one.
    pub(super) fn listen() -> Result<Interrupts> {
        let (armed, signal) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut endings = Vec::new();
        for number in signals() {
            // In this order: the first signal arms what the second one meets.
            let code = exit_code(number as usize).into();
            endings.push(flag::register_conditional_shutdown(number, code, Arc::clone(&armed))?);
            flag::register(number, Arc::clone(&armed))?;
            flag::register_usize(number, Arc::clone(&signal), number as usize)?;
        }
        Ok(Interrupts { armed, signal, seen: None, endings })
    }

    /// From here on no signal ends the process: what is being written is short, and half of it would be left behind.
    pub(super) fn hold(&mut self) {
        for ending in self.endings.drain(..) {
            unregister(ending);
        }
    }

    /// The exit code that the last signal asks for, as shells count it; `None` while none has come.
    pub(super) fn code(&self) -> Option<u8> {
        Some(self.signal.load(Ordering::Relaxed)).filter(|signal| *signal != 0).map(exit_code)
    }

    /// Whether it was a Ctrl-C, which is done with by this: the next one is a first one again.
    pub(super) fn take_ctrl_c(&mut self) -> bool {
        let taken =
            self.signal.compare_exchange(SIGINT as usize, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if taken {
            self.armed.store(false, Ordering::Relaxed);
            self.seen = None;
        }
        taken
    }

    /// To be called again and again: calls `cancel` once after a signal, and tells when it is no longer worth waiting for
    /// what that does.
    pub(super) fn overdue(&mut self, cancel: impl FnOnce()) -> bool {
        match (self.seen, self.code()) {
            (Some(seen), _) => seen.elapsed() >= GRACE,
            (None, Some(_)) => {
                cancel();
                self.seen = Some(Instant::now());
                false
            }
            (None, None) => false,
        }
    }
}

/// 129 for SIGHUP, 130 for SIGINT, 143 for SIGTERM.
fn exit_code(signal: usize) -> u8 {
    128 + signal as u8
}

#[cfg(unix)]
fn signals() -> Vec<i32> {
    use signal_hook::consts::SIGHUP;
    // What `nohup` starts goes on when its terminal is closed.
    if is_ignored(SIGHUP) { vec![SIGINT, SIGTERM] } else { vec![SIGINT, SIGTERM, SIGHUP] }
}

#[cfg(not(unix))]
fn signals() -> Vec<i32> {
    vec![SIGINT, SIGTERM]
}

/// Whether this process was started with a signal ignored, as far as the system tells.
#[cfg(unix)]
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use signal_hook::low_level::raise;

    use super::*;

    #[test]
    fn what_is_being_written_outlives_any_number_of_signals() {
        let mut interrupts = Interrupts::listen().unwrap();
        interrupts.hold();
        (0..3).for_each(|_| raise(SIGTERM).unwrap());
        assert_eq!(interrupts.code(), Some(143));
    }
}
