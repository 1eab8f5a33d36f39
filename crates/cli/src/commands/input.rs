//! Reads prompts, texts and token ids from files and stdin.

use std::io::{IsTerminal, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};

use crate::counted::counted;
use crate::output;

/// The most bytes of a text that is read as a whole.
const MOST_BYTES: u64 = 256 << 20;

/// All of stdin as text.
pub(super) fn stdin_text() -> Result<String> {
    note_terminal_input();
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
    utf8(&bytes).map(str::to_owned).map_err(|error| anyhow!("{name} is {error}"))
}

/// Bytes as text.
pub(super) fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes)
        .map_err(|error| anyhow!("not UTF-8 text: byte {} does not fit", error.valid_up_to()))
}

/// A prompt: the text without a byte-order mark and without the line end that editors and `echo`
/// add, as in llama.cpp.
pub(super) fn prompt(text: &str) -> &str {
    let text = without_mark(text);
    text.strip_suffix("\r\n").or_else(|| text.strip_suffix('\n')).unwrap_or(text)
}

/// A text without the byte-order mark that some editors write in front of it.
pub(super) fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Notes that the terminal is read: a command that waits looks like one that hangs.
pub(super) fn note_terminal_input() {
    if std::io::stdin().is_terminal() {
        output::note("reading from the terminal; Ctrl-D ends the input");
    }
}

/// A JSON array of token ids on stdin.
pub(super) fn stdin_ids() -> Result<Vec<u32>> {
    serde_json::from_str(&stdin_text()?)
        .map_err(|error| anyhow!("stdin is not a JSON array of token ids, such as [1, 2]: {error}"))
}

/// Fails for an id outside of the vocabulary.
pub(super) fn check_ids(ids: &[u32], vocabulary: usize) -> Result<()> {
    match ids.iter().enumerate().find(|(_, id)| **id as usize >= vocabulary) {
        Some((index, id)) => {
            bail!("id {id} at index {index} is outside of the vocabulary of {}", counted(vocabulary, "token"))
        }
        None => Ok(()),
    }
}
