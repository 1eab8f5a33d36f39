//! The mode of the terminal before the line editor changed it.

/// Restores the mode while the editor still reads a line.
pub(super) struct Terminal {
    #[cfg(unix)]
    before: Option<rustix::termios::Termios>,
}

#[cfg(unix)]
impl Terminal {
    /// Saves the mode.
    pub(super) fn new() -> Terminal {
        Terminal { before: rustix::termios::tcgetattr(std::io::stdin()).ok() }
    }

    /// Restores the mode and moves the cursor to the beginning of a line.
    pub(super) fn restore(&self) {
        use std::io::{IsTerminal, Write};

        use rustix::termios::{OptionalActions, tcsetattr};

        let Some(before) = &self.before else { return };
        // Fails for a closed terminal, which needs nothing.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        let mut out = std::io::stdout().lock();
        if out.is_terminal() {
            // Switches off bracketed paste, which the editor switched on.
            let _ = out.write_all(b"\x1b[?2004l\r\n").and_then(|()| out.flush());
        }
    }
}

/// A line that was typed ahead, empty at the end of the input. The editor would read all lines that
/// are there and keep the first; without it the terminal gives line by line.
#[cfg(unix)]
pub(super) fn typed_ahead() -> Option<Vec<u8>> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    let stdin = std::io::stdin();
    let mut pending = [PollFd::new(&stdin, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let is_there = poll(&mut pending, Some(&at_once)) == Ok(1) && pending[0].revents() == PollFlags::IN;
    // No terminal has longer lines.
    let mut line = vec![0; 1 << 16];
    let read = is_there.then(|| rustix::io::read(&stdin, line.as_mut_slice()).ok()).flatten()?;
    line.truncate(read);
    Some(line)
}

#[cfg(not(unix))]
pub(super) fn typed_ahead() -> Option<Vec<u8>> {
    None
}

#[cfg(not(unix))]
impl Terminal {
    pub(super) fn new() -> Terminal {
        Terminal {}
    }

    pub(super) fn restore(&self) {}
}
