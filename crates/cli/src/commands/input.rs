//! Text and ids that come from outside.

use std::io::Read;

use anyhow::{Context, Result, bail};

/// All of stdin as text.
pub(super) fn stdin_text() -> Result<String> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).context("stdin")?;
    String::from_utf8(bytes).context("stdin is not UTF-8 text")
}

/// A JSON array of token ids on stdin.
pub(super) fn stdin_ids() -> Result<Vec<u32>> {
    serde_json::from_str(&stdin_text()?).context("stdin is not a JSON array of token ids")
}

/// Refuses ids that the vocabulary does not have.
pub(super) fn check_ids(ids: &[u32], vocabulary: usize) -> Result<()> {
    match ids.iter().enumerate().find(|(_, id)| **id as usize >= vocabulary) {
        Some((index, id)) => {
            bail!("id {id} at index {index} is outside of the vocabulary of {vocabulary} tokens")
        }
        None => Ok(()),
    }
}
