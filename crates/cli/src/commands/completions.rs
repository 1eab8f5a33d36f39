//! `minfer completions`.

use anyhow::Result;

use crate::args::{CompletionsArgs, definition};
use crate::output;

/// Prints the completion script of a shell.
pub(super) fn completions(args: &CompletionsArgs) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut definition(), "minfer", &mut script);
    output::answer(|out| Ok(out.write_all(&script)?))
}
