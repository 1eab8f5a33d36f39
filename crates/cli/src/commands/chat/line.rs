//! Lines of a conversation: from a terminal with editing and a history, or from stdin.
//!
//! A thread reads one line for each request, so that signals are seen while nobody types.

use std::io::{self, BufRead, IsTerminal};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use rustyline::error::ReadlineError;
use rustyline::history::MemHistory;
use rustyline::{Config, Editor};

use super::terminal::{Terminal, typed_ahead};
use crate::output;
use crate::signals::Interrupts;

/// Begins and ends a message of several lines.
const QUOTES: &str = "\"\"\"";
/// How often to look for a signal.
const POLL: Duration = Duration::from_millis(50);
/// The answer to Ctrl-C at the prompt.
const HOW_TO_END: &str = "(Ctrl-D or /exit ends the conversation)";

/// What was typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Input {
    /// A line: a message or a command.
    Line(String),
    /// A text in quotes: always a message.
    Quoted(String),
}

/// What ended the wait for a line.
pub(super) enum Next {
    Input(Input),
    /// The input has ended.
    End,
    /// A signal.
    Interrupted,
}

/// Where messages come from.
pub(super) struct Lines {
    is_terminal: bool,
    terminal: Terminal,
    ask: Sender<()>,
    typed: Receiver<Result<Option<Input>>>,
}

impl Lines {
    pub(super) fn new() -> Result<Lines> {
        let is_terminal = io::stdin().is_terminal();
        let ((ask, asked), (say, typed)) = (channel(), channel());
        std::thread::Builder::new()
            .name("lines".to_owned())
            .spawn(move || read(is_terminal, &asked, &say))
            .map_err(output::no_thread)?;
        Ok(Lines { is_terminal, terminal: Terminal::new(), ask, typed })
    }

    pub(super) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// The next message or command.
    pub(super) fn next(&mut self, interrupts: &mut Interrupts) -> Result<Next> {
        if self.is_terminal {
            // Ctrl-C came after the answer that it should stop.
            interrupts.take_ctrl_c();
        }
        // If the reader is gone, receiving fails below.
        let _ = self.ask.send(());
        loop {
            let typed = self.typed.recv_timeout(POLL);
            if self.is_terminal && interrupts.take_ctrl_c() {
                output::note(HOW_TO_END);
            }
            if interrupts.code().is_some() {
                self.terminal.restore();
                return Ok(Next::Interrupted);
            }
            match typed {
                Ok(input) => return Ok(input?.map_or(Next::End, Next::Input)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(anyhow!("the input cannot be read")),
            }
        }
    }
}

/// Reads an input for each request.
fn read(is_terminal: bool, asked: &Receiver<()>, say: &Sender<Result<Option<Input>>>) {
    let mut reader = Reader::Stdin;
    while asked.recv().is_ok() {
        if is_terminal && matches!(reader, Reader::Stdin) {
            let config = Config::builder().auto_add_history(false).build();
            match Editor::with_history(config, MemHistory::new()).context("the terminal") {
                Ok(editor) => reader = Reader::Terminal(Box::new(editor)),
                Err(error) => {
                    let _ = say.send(Err(error));
                    return;
                }
            }
        }
        // At the end of the conversation nobody receives it.
        let _ = say.send(next_input(&mut |prompt| reader.line(prompt)));
    }
}

#[derive(Debug)]
enum Line {
    Text(String),
    /// Ctrl-C.
    Abandoned,
    End,
}

/// The next message or command; `None` at the end of the input.
fn next_input(line: &mut impl FnMut(&str) -> Result<Line>) -> Result<Option<Input>> {
    loop {
        let first = match line("> ")? {
            Line::Text(first) => first,
            Line::Abandoned => {
                output::note(HOW_TO_END);
                continue;
            }
            Line::End => return Ok(None),
        };
        let Some(begun) = first.trim_start().strip_prefix(QUOTES) else {
            return Ok(Some(Input::Line(first)));
        };
        match quoted(begun, line)? {
            Some(text) => return Ok(Some(Input::Quoted(text))),
            None => output::note("(the message is dropped)"),
        }
    }
}

/// A message up to its closing quotes, with the rest of that line; `None` after Ctrl-C.
fn quoted(begun: &str, line: &mut impl FnMut(&str) -> Result<Line>) -> Result<Option<String>> {
    let (mut text, mut next) = (String::new(), begun.to_owned());
    loop {
        if let Some((last, after)) = next.split_once(QUOTES) {
            text.push_str(last);
            text.push_str(after.trim_end());
            return Ok(Some(text));
        }
        text.push_str(&next);
        next = match line(". ")? {
            Line::Text(next) => next,
            Line::Abandoned => return Ok(None),
            Line::End => return Ok(Some(text)),
        };
        text.push('\n');
    }
}

enum Reader {
    /// With editing and a history.
    Terminal(Box<Editor<(), MemHistory>>),
    /// A file or a program.
    Stdin,
}

impl Reader {
    fn line(&mut self, prompt: &str) -> Result<Line> {
        let Reader::Terminal(editor) = self else { return stdin_line() };
        if let Some(bytes) = typed_ahead() {
            let line = String::from_utf8_lossy(&bytes);
            let line = line.trim_end_matches(['\r', '\n']);
            output::note(&format!("{prompt}{line}"));
            let _ = editor.add_history_entry(line);
            return Ok(if bytes.is_empty() { Line::End } else { Line::Text(line.to_owned()) });
        }
        match editor.readline(prompt) {
            Ok(line) => {
                let _ = editor.add_history_entry(&line);
                Ok(Line::Text(line))
            }
            Err(ReadlineError::Interrupted) => Ok(Line::Abandoned),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(error) => Err(error).context("the terminal"),
        }
    }
}

fn stdin_line() -> Result<Line> {
    let mut bytes = Vec::new();
    let read = loop {
        match io::stdin().lock().read_until(b'\n', &mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read.context("stdin")?,
        }
    };
    if read == 0 && bytes.is_empty() {
        return Ok(Line::End);
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        anyhow!("stdin is not UTF-8 text: byte {} of a line does not fit", error.utf8_error().valid_up_to())
    })?;
    Ok(Line::Text(text.trim_end_matches(['\n', '\r']).to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What lines come to; `^C` stands for Ctrl-C.
    fn inputs(lines: &[&str]) -> Vec<Input> {
        let mut lines = lines.iter();
        let mut line = |_: &str| {
            Ok(match lines.next() {
                Some(&"^C") => Line::Abandoned,
                Some(text) => Line::Text((*text).to_owned()),
                None => Line::End,
            })
        };
        std::iter::from_fn(|| next_input(&mut line).unwrap()).collect()
    }

    #[test]
    fn quotes_hold_a_message() {
        let (line, quoted) =
            (|text: &str| Input::Line(text.to_owned()), |text: &str| Input::Quoted(text.to_owned()));
        assert_eq!(inputs(&["a", " /b "]), [line("a"), line(" /b ")]);
        assert_eq!(inputs(&["\"\"\"/stats\"\"\"", "c"]), [quoted("/stats"), line("c")]);
        assert_eq!(inputs(&[" \"\"\"a", "", "b\"\"\" ", "c"]), [quoted("a\n\nb"), line("c")]);
        assert_eq!(inputs(&["\"\"\"a", "b\"\"\" and more", "c"]), [quoted("a\nb and more"), line("c")]);
        assert_eq!(inputs(&["\"\"\"a", "^C", "c"]), [line("c")]);
        assert_eq!(inputs(&["^C", "c"]), [line("c")]);
        assert_eq!(inputs(&["\"\"\"a", "b"]), [quoted("a\nb")]);
    }
}
