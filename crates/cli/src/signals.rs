//! Signals. One ends the process at once, after the progress line is erased, unless a command
//! [listens](Interrupts::listen) and ends in good order.
//!
//! On Unix a thread receives them, since the erasing does what a signal handler must not do.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

/// How long an interrupted command waits for the engine, which looks for cancelled requests between
/// two forward passes.
const GRACE: Duration = Duration::from_millis(300);

/// A signal ends the process at once.
const ENDS: u8 = 0;
/// The first signal is recorded, the second one ends the process.
const RECORDS_FIRST: u8 = 1;
/// Signals are recorded.
const RECORDS: u8 = 2;

/// What a signal does now.
static MODE: AtomicU8 = AtomicU8::new(ENDS);
/// Whether a signal was recorded.
static ARMED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
/// The last signal that was recorded; 0 while there is none.
static LAST: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// The signals since [`listen`](Interrupts::listen). A second one ends the process.
pub(crate) struct Interrupts {
    seen: Option<Instant>,
}

impl Interrupts {
    /// Records signals from here on; only the second one ends the process.
    pub(crate) fn listen() -> io::Result<Interrupts> {
        system::watch_interrupts()?;
        MODE.store(RECORDS_FIRST, Ordering::SeqCst);
        Ok(Interrupts { seen: None })
    }

    /// No signal ends the process from here on: a file is being written.
    pub(crate) fn hold(&mut self) {
        MODE.store(RECORDS, Ordering::SeqCst);
    }

    /// The exit code of the last signal, as shells count it; `None` without a signal.
    pub(crate) fn code(&self) -> Option<u8> {
        Some(LAST.load(Ordering::SeqCst)).filter(|signal| *signal != 0).map(exit_code)
    }

    /// Whether the last signal was Ctrl-C, which is then forgotten: the next one is a first one
    /// again.
    pub(crate) fn take_ctrl_c(&mut self) -> bool {
        let taken = LAST.compare_exchange(SIGINT as usize, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if taken {
            ARMED.store(false, Ordering::SeqCst);
            self.seen = None;
        }
        taken
    }

    /// Calls `cancel` once after a signal; returns whether the time to wait for its effect is over.
    /// To be polled.
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

/// Erases the progress line when a signal ends the process, from here on.
///
/// # Errors
/// The system refused a thread or a pipe; signals do what they did before.
pub(crate) fn watch_endings() -> io::Result<()> {
    system::watch_endings()
}

/// Makes the limit of file sizes (`ulimit -f`) an error of the write, not a signal that ends the
/// process.
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
    use crate::progress_line;

    /// The stack of the signal thread.
    const STACK_BYTES: usize = 128 << 10;

    /// The signal thread, once it is started.
    static WATCH: Mutex<Option<Handle>> = Mutex::new(None);

    pub(super) fn watch_interrupts() -> io::Result<()> {
        // Under `nohup` the closed terminal does not end the process.
        let hang_up = [SIGHUP].into_iter().filter(|&signal| !is_ignored(signal));
        watch([SIGINT, SIGTERM].into_iter().chain(hang_up))
    }

    pub(super) fn watch_endings() -> io::Result<()> {
        watch([SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter().filter(|&signal| !is_ignored(signal)))
    }

    pub(super) fn let_full_files_be_errors() {
        // If this fails, the signal ends the process as before.
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

    /// Starts the signal thread before any signal is registered.
    fn start() -> io::Result<Handle> {
        let mut signals = Signals::new([0; 0])?;
        let handle = signals.handle();
        let thread = std::thread::Builder::new().name("signals".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || signals.forever().for_each(receive))?;
        Ok(handle)
    }

    fn receive(signal: i32) {
        let mode = MODE.load(Ordering::SeqCst);
        if mode == ENDS || signal == SIGQUIT {
            progress_line::clear_for_good();
            // This does not return.
            let _ = low_level::emulate_default_handler(signal);
        }
        LAST.store(signal as usize, Ordering::SeqCst);
        if ARMED.swap(true, Ordering::SeqCst) && mode == RECORDS_FIRST {
            progress_line::clear_for_good();
            low_level::exit(exit_code(signal as usize).into());
        }
    }

    /// Whether the process was started with a signal ignored; `false` where the system does not
    /// say.
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

    /// Uses flags alone, so a second signal ends the process also while a file is written.
    pub(super) fn watch_interrupts() -> io::Result<()> {
        for signal in [SIGINT, SIGTERM] {
            // In this order: the second signal must find what the first one armed.
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
    fn no_number_of_signals_ends_a_write() {
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
