//! Text and ids that come from outside.

use std::io::{IsTerminal, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use minfer::tensor::counted;

use crate::json::Fault;
use crate::output;

/// The most bytes of a text that is read as a whole.
const MOST_BYTES: u64 = 256 << 20;

/// All of stdin as text.
pub(super) fn stdin_text() -> Result<String> {
    say_that_stdin_is_read();
    text("stdin", std::io::stdin().lock())
}

/// All of a file as text; `-` is stdin.
pub(super) fn file_text(path: &Path) -> Result<String> {
    if path.as_os_str() == "-" {
        return stdin_text();
    }
    let name = path.display().to_string();
    if path.is_dir() {
        bail!("{name} is a folder; a file of text is needed");
    }
    text(&name, std::fs::File::open(path).with_context(|| name.clone())?)
}

fn text(name: &str, from: impl Read) -> Result<String> {
    let mut bytes = Vec::new();
    from.take(MOST_BYTES + 1).read_to_end(&mut bytes).with_context(|| name.to_owned())?;
    if bytes.len() as u64 > MOST_BYTES {
        bail!("{name} has more than {MOST_BYTES} bytes; longer texts are not read as a whole");
    }
    String::from_utf8(bytes).map_err(|error| {
        anyhow!("{name} is not UTF-8 text: byte {} does not fit", error.utf8_error().valid_up_to())
    })
}

/// Without this, a command that waits for a person looks like one that hangs.
pub(super) fn say_that_stdin_is_read() {
    if std::io::stdin().is_terminal() {
        output::note("reading from the terminal; Ctrl-D ends the input");
    }
}

/// A JSON array of token ids on stdin.
pub(super) fn stdin_ids() -> Result<Vec<u32>> {
    let text = stdin_text()?;
    serde_json::from_str(&text).map_err(|error| {
        let fault = Fault::of(&text, &error);
        let is_element = fault.is_json && text.trim_start().starts_with('[');
        let place = if is_element {
            format!("index {}: {}", index(&text, &fault), fault.what)
        } else {
            fault.placed()
        };
        anyhow!("stdin is not a JSON array of token ids, such as [1, 2]: {place}")
    })
}

/// Of which element a fault is: before it are numbers alone, and a comma after each.
fn index(text: &str, fault: &Fault) -> usize {
    let lines = text.split_inclusive('\n').take(fault.line).enumerate();
    let before = lines.flat_map(|(index, line)| {
        let end = if index + 1 == fault.line { fault.column } else { line.len() };
        line.bytes().take(end)
    });
    before.take_while(|byte| *byte != b'"').filter(|byte| *byte == b',').count()
}

/// Refuses ids that the vocabulary does not have.
pub(super) fn check_ids(ids: &[u32], vocabulary: usize) -> Result<()> {
    match ids.iter().enumerate().find(|(_, id)| **id as usize >= vocabulary) {
        Some((index, id)) => {
            bail!("id {id} at index {index} is outside of the vocabulary of {}", counted(vocabulary, "token"))
        }
        None => Ok(()),
    }
}
