//! What the user sees beside the answer: errors in one line, exit codes, progress.

use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Result;

use crate::refusal;
use crate::waiting::Waiting;

/// Something failed.
pub(crate) const FAILED: u8 = 1;
/// The command line was wrong.
pub(crate) const USAGE: u8 = 2;

/// A wrong value that only the command can tell from a right one.
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

/// Prints an error with its causes in one line and gives the exit code. A reader of stdout that has gone away has what
/// it wanted.
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

/// An error and its causes, with flags in place of fields, without those that it has in its own words.
fn sentence(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |text, cause| {
        let cause = refusal::text(cause);
        match (text.is_empty(), text.contains(&cause)) {
            (true, _) => cause,
            (false, true) => text,
            (false, false) => format!("{}: {cause}", text.trim_end_matches(['?', '.'])),
        }
    })
}

/// Writes to stdout; what could not be written is an error.
pub(crate) fn answer(write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    write(&mut out).and_then(|()| Ok(out.flush()?)).map_err(of_stdout)
}

/// Says where it was that writing failed. Any other error that has come up meanwhile says so itself.
pub(crate) fn of_stdout(error: anyhow::Error) -> anyhow::Error {
    let Some(cause) = error.downcast_ref::<io::Error>().filter(|_| error.chain().len() == 1) else {
        return error;
    };
    let text = format!("the output could not be written: {cause}{}", write_advice(cause));
    error.context(text)
}

/// What helps where a thread was refused.
pub(crate) const THREAD_ADVICE: &str = "; a larger limit of processes (ulimit -u) may help";

/// Says what the system refused where it gave no thread.
pub(crate) fn no_thread(cause: io::Error) -> anyhow::Error {
    let text = format!("a thread could not be started: {cause}{THREAD_ADVICE}");
    anyhow::Error::new(cause).context(text)
}

/// Says what the system refused where signals cannot be heard: a thread, or a pipe.
pub(crate) fn no_signals(cause: io::Error) -> anyhow::Error {
    let advice = if cause.kind() == io::ErrorKind::WouldBlock { THREAD_ADVICE } else { "" };
    let text = format!("signals cannot be listened to: {cause}{advice}");
    anyhow::Error::new(cause).context(text)
}

/// What helps where something could not be written; empty, or a clause with its separator.
pub(crate) fn write_advice(cause: &io::Error) -> &'static str {
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

/// One line on stderr, above what is shown of anything that goes on. A stderr that is closed is no failure.
pub(crate) fn note(text: &str) {
    Waiting::suspend(|| {
        let _ = writeln!(io::stderr().lock(), "{text}");
    });
}

/// Control characters and line ends of a message, some of which come from files, as escapes.
pub(crate) fn one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.trim_end().chars() {
        if character.is_control() { out.extend(character.escape_default()) } else { out.push(character) }
    }
    out
}

/// A panic is our bug; it reads like any other failure.
pub(crate) fn report_panics_in_one_line() {
    std::panic::set_hook(Box::new(|panic| {
        note(&format!("error: this is a bug in minfer: {}", one_line(&panic.to_string())));
    }));
}

/// Whether moving bars and colours have a place to go.
pub(crate) fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Bytes for people.
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
