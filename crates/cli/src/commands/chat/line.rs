//! Lines of a conversation: from a terminal with editing and a history, else from stdin as they come.

use std::io::{self, BufRead, IsTerminal};

use anyhow::{Context, Result};
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Config, Editor};

use crate::output;

/// What begins and ends a message of several lines.
const QUOTES: &str = "\"\"\"";

/// Where messages come from.
pub(super) enum Lines {
    /// Somebody types.
    Terminal(Box<Editor<(), MemHistory>>),
    /// A file or a program.
    Stdin,
}

impl Lines {
    pub(super) fn new() -> Result<Lines> {
        if !io::stdin().is_terminal() {
            return Ok(Lines::Stdin);
        }
        let config = Config::builder().auto_add_history(false).build();
        let editor = Editor::with_history(config, MemHistory::new()).context("the terminal")?;
        Ok(Lines::Terminal(Box::new(editor)))
    }

    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Lines::Terminal(_))
    }

    /// The next message or command; `None` at the end of the input.
    pub(super) fn next(&mut self) -> Result<Option<String>> {
        let Some(first) = self.line("> ")? else { return Ok(None) };
        let Some(mut text) = first.trim_start().strip_prefix(QUOTES).map(str::to_owned) else {
            return Ok(Some(first));
        };
        loop {
            if let Some(end) = text.find(QUOTES) {
                text.truncate(end);
                return Ok(Some(text));
            }
            let Some(next) = self.line(". ")? else { return Ok(Some(text)) };
            text.push('\n');
            text.push_str(&next);
        }
    }

    fn line(&mut self, prompt: &str) -> Result<Option<String>> {
        let Lines::Terminal(editor) = self else { return stdin_line() };
        loop {
            match editor.readline(prompt) {
                Ok(line) => {
                    // A history that is full or off is no reason to stop.
                    let _ = editor.add_history_entry(&line);
                    return Ok(Some(line));
                }
                Err(ReadlineError::Interrupted) => output::note("(Ctrl-D or /exit ends the conversation)"),
                Err(ReadlineError::Eof) => return Ok(None),
                Err(error) => return Err(error).context("the terminal"),
            }
        }
    }
}

fn stdin_line() -> Result<Option<String>> {
    let mut bytes = Vec::new();
    let read = loop {
        match io::stdin().lock().read_until(b'\n', &mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read.context("stdin")?,
        }
    };
    if read == 0 && bytes.is_empty() {
        return Ok(None);
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        anyhow::anyhow!(
            "stdin is not UTF-8 text: byte {} of a line does not fit",
            error.utf8_error().valid_up_to()
        )
    })?;
    Ok(Some(text.trim_end_matches(['\n', '\r']).to_owned()))
}
