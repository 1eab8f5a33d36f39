//! The terminal as it was before anybody edited a line in it.

/// How to bring the terminal back while an editor still waits for a line.
pub(super) struct Terminal {
    #[cfg(unix)]
    before: Option<rustix::termios::Termios>,
}

#[cfg(unix)]
impl Terminal {
    /// As it is now.
    pub(super) fn new() -> Terminal {
        Terminal { before: rustix::termios::tcgetattr(std::io::stdin()).ok() }
    }

    /// Lines and echoes as before, and the cursor at the beginning of a line.
    pub(super) fn restore(&self) {
        use std::io::{IsTerminal, Write};

        use rustix::termios::{OptionalActions, tcsetattr};

        let Some(before) = &self.before else { return };
        // A terminal that has been closed needs nothing.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        let mut out = std::io::stdout().lock();
        if out.is_terminal() {
            // The editor had asked for marks around what is pasted.
            let _ = out.write_all(b"\x1b[?2004l\r\n").and_then(|()| out.flush());
        }
    }
}

#[cfg(not(unix))]
impl Terminal {
    pub(super) fn new() -> Terminal {
        Terminal {}
    }

    pub(super) fn restore(&self) {}
}
