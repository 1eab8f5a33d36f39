//! Messages and exit codes: an error is one line on stderr.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Result;

use crate::progress_line::ProgressLine;
use crate::wording;

/// Exit code of a failure.
pub(crate) const FAILED: u8 = 1;
/// Exit code of a wrong command line.
pub(crate) const USAGE: u8 = 2;

/// A usage error that only the command can find.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Wrong(pub(crate) String);

/// Prints help or a usage error and gives the exit code.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    match error.print() {
        _ if error.use_stderr() => ExitCode::from(USAGE),
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure(&of_stdout(error.into())),
    }
}

/// Prints an error with its causes in one line and returns the exit code. A closed stdout (`minfer
/// list | head -1`) is no failure.
pub(crate) fn failure(error: &anyhow::Error) -> ExitCode {
    let closed = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(closed) {
        return ExitCode::SUCCESS;
    }
    note(&format!("error: {}", one_line(&sentence(error))));
    ExitCode::from(if error.is::<Wrong>() { USAGE } else { FAILED })
}

/// An error and its causes, without those that its message already contains.
pub(crate) fn sentence(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| {
        let cause = wording::text(cause);
        match (text.is_empty(), text.contains(&cause)) {
            (true, _) => cause,
            (false, true) => text,
            (false, false) => format!("{}: {cause}", text.trim_end_matches(['?', '.'])),
        }
    })
}

/// Writes to stdout.
pub(crate) fn answer(write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    write(&mut out).and_then(|()| Ok(out.flush()?)).map_err(of_stdout)
}

/// Adds that stdout could not be written, if that is the error.
pub(crate) fn of_stdout(error: anyhow::Error) -> anyhow::Error {
    let Some(cause) = error.downcast_ref::<io::Error>().filter(|_| error.chain().len() == 1) else {
        return error;
    };
    let text = format!("the output could not be written: {cause}{}", write_suggestion(cause));
    error.context(text)
}

/// A suggestion for a refused thread.
pub(crate) const THREAD_SUGGESTION: &str = "; a larger limit of processes (ulimit -u) may help";

/// An error about a refused thread.
pub(crate) fn no_thread(cause: io::Error) -> anyhow::Error {
    let text = format!("a thread could not be started: {cause}{THREAD_SUGGESTION}");
    anyhow::Error::new(cause).context(text)
}

/// An error about the signal thread: the system refused a thread or a pipe.
pub(crate) fn no_signals(cause: io::Error) -> anyhow::Error {
    let suggestion = if cause.kind() == io::ErrorKind::WouldBlock { THREAD_SUGGESTION } else { "" };
    let text = format!("signals cannot be received: {cause}{suggestion}");
    anyhow::Error::new(cause).context(text)
}

/// A suggestion for a failed write, with its separator; may be empty.
pub(crate) fn write_suggestion(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::StorageFull => "; free some space or write it elsewhere",
        io::ErrorKind::FileTooLarge => "; a larger limit of file sizes (ulimit -f) lets it be written",
        #[cfg(unix)]
        _ if cause.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => {
            "; a larger limit of open files (ulimit -n) lets it be written"
        }
        _ => "",
    }
}

/// Writes one line to stdout.
pub(crate) fn line(text: &impl Display) -> Result<()> {
    answer(|out| Ok(writeln!(out, "{text}")?))
}

/// Writes one line to stderr, above the progress line. A closed stderr is no failure.
pub(crate) fn note(text: &str) {
    ProgressLine::suspend(|| {
        let _ = writeln!(io::stderr().lock(), "{text}");
    });
}

/// A message with control characters and line ends as escapes: names come from files.
pub(crate) fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.trim_end().chars() {
        if character.is_control() { out.extend(character.escape_default()) } else { out.push(character) }
    }
    out
}

/// A panic is a bug in minfer; it is reported as an error is.
pub(crate) fn report_panics_in_one_line() {
    std::panic::set_hook(Box::new(|panic| {
        note(&format!("error: this is a bug in minfer: {}", one_line(&panic.to_string())));
    }));
}

pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Bytes with a unit, such as `1.50 GiB`.
pub(crate) fn bytes(count: u64) -> String {
    indicatif::BinaryBytes(count).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stay_in_one_line() {
        assert_eq!(one_line("a\nb\u{1b}[31mc\r\n"), "a\\nb\\u{1b}[31mc");
    }

    #[test]
    fn causes_are_said_once() {
        let inner = io::Error::other("the disk is full");
        let error = anyhow::Error::new(inner).context("x: the disk is full").context("writing");
        assert_eq!(sentence(&error), "writing: x: the disk is full");
    }
}
