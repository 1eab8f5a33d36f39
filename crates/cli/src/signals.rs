//! What signals do: they end the process at once, after a line that it shows was taken away, unless a command
//! [listens](Interrupts::listen) and ends in good order.
//!
//! On Unix a thread hears of them, so that an end at once may do what a signal handler may not.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

/// How long an interrupted command waits for the engine, which hears of it between two forwards.
const GRACE: Duration = Duration::from_millis(300);

/// A signal ends the process at once.
const ENDS: u8 = 0;
/// The first signal is counted, the second one ends the process at once.
const COUNTS: u8 = 1;
/// Signals are counted.
const HOLDS: u8 = 2;

/// What a signal does now.
static MODE: AtomicU8 = AtomicU8::new(ENDS);
/// A signal was counted.
static ARMED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
/// The last signal that was counted; 0 while none has come.
static LAST: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// What has come since [`listen`](Interrupts::listen). A second signal ends the process at once.
pub(crate) struct Interrupts {
    seen: Option<Instant>,
}

impl Interrupts {
    /// From here on signals are counted and no longer end the process, but for the second one.
    pub(crate) fn listen() -> io::Result<Interrupts> {
        system::watch_interrupts()?;
        MODE.store(COUNTS, Ordering::SeqCst);
        Ok(Interrupts { seen: None })
    }

    /// From here on no signal ends the process: what is being written is short, and half of it would be left behind.
    pub(crate) fn hold(&mut self) {
        MODE.store(HOLDS, Ordering::SeqCst);
    }

    /// The exit code that the last signal asks for, as shells count it; `None` while none has come.
    pub(crate) fn code(&self) -> Option<u8> {
        Some(LAST.load(Ordering::SeqCst)).filter(|signal| *signal != 0).map(exit_code)
    }

    /// Whether it was a Ctrl-C, which is done with by this: the next one is a first one again.
    pub(crate) fn take_ctrl_c(&mut self) -> bool {
        let taken = LAST.compare_exchange(SIGINT as usize, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if taken {
            ARMED.store(false, Ordering::SeqCst);
            self.seen = None;
        }
        taken
    }

    /// To be called again and again: calls `cancel` once after a signal, and tells when it is no longer worth waiting for
    /// what that does.
    pub(crate) fn overdue(&mut self, cancel: impl FnOnce()) -> bool {
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

/// From here on a signal that ends the process takes away the line that is shown.
///
/// # Errors
/// The system refused a thread or a pipe; signals do what they did before.
pub(crate) fn watch_endings() -> io::Result<()> {
    system::watch_endings()
}

/// From here on a file that may not grow (`ulimit -f`) is an error of the write to it, and no end of the process.
pub(crate) fn let_full_files_be_errors() {
    system::let_full_files_be_errors();
}

/// 129 for SIGHUP, 130 for SIGINT, 143 for SIGTERM.
fn exit_code(signal: usize) -> u8 {
    128 + signal as u8
}

#[cfg(unix)]
mod system {
    use std::sync::{Mutex, PoisonError};

    use signal_hook::consts::{SIGHUP, SIGQUIT, SIGXFSZ};
    use signal_hook::iterator::{Handle, Signals};
    use signal_hook::{flag, low_level};

    use super::*;
    use crate::waiting;

    /// Of the thread that hears of signals, which does little itself.
    const STACK_BYTES: usize = 128 << 10;

    /// Of the thread that hears of signals, once there is one.
    static WATCH: Mutex<Option<Handle>> = Mutex::new(None);

    pub(super) fn watch_interrupts() -> io::Result<()> {
        // What `nohup` starts goes on when its terminal is closed.
        let hang_up = [SIGHUP].into_iter().filter(|&signal| !is_ignored(signal));
        watch([SIGINT, SIGTERM].into_iter().chain(hang_up))
    }

    pub(super) fn watch_endings() -> io::Result<()> {
        watch([SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter().filter(|&signal| !is_ignored(signal)))
    }

    pub(super) fn let_full_files_be_errors() {
        // Where that fails the signal ends the process, as it would have.
        let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    }

    fn watch(mut signals: impl Iterator<Item = i32>) -> io::Result<()> {
        let mut watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
        if watch.is_none() {
            *watch = Some(start()?);
        }
        let handle = watch.as_ref().expect("started");
        signals.try_for_each(|signal| handle.add_signal(signal))
    }

    /// Starts the thread that hears of signals. It is there before the first signal can reach it.
    fn start() -> io::Result<Handle> {
        let mut signals = Signals::new([0; 0])?;
        let handle = signals.handle();
        let thread = std::thread::Builder::new().name("signals".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || signals.forever().for_each(heard))?;
        Ok(handle)
    }

    fn heard(signal: i32) {
        let mode = MODE.load(Ordering::SeqCst);
        if mode == ENDS || signal == SIGQUIT {
            waiting::clear_for_good();
            // It does not come back.
            let _ = low_level::emulate_default_handler(signal);
        }
        LAST.store(signal as usize, Ordering::SeqCst);
        if ARMED.swap(true, Ordering::SeqCst) && mode == COUNTS {
            waiting::clear_for_good();
            low_level::exit(exit_code(signal as usize).into());
        }
    }

    /// Whether this process was started with a signal ignored, as far as the system tells.
    fn is_ignored(signal: i32) -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
    }
}

#[cfg(not(unix))]
mod system {
    use signal_hook::flag;

    use super::*;

    /// Flags alone, so that a second signal ends the process also while something is written.
    pub(super) fn watch_interrupts() -> io::Result<()> {
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal arms what the second one meets.
            flag::register_conditional_shutdown(
                signal,
                exit_code(signal as usize).into(),
                Arc::clone(&ARMED),
            )?;
            flag::register(signal, Arc::clone(&ARMED))?;
            flag::register_usize(signal, Arc::clone(&LAST), signal as usize)?;
        }
        Ok(())
    }

    pub(super) fn watch_endings() -> io::Result<()> {
        Ok(())
    }

    pub(super) fn let_full_files_be_errors() {}
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
        let heard = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            interrupts.code() == Some(143)
        });
        assert!(heard);
    }
}
