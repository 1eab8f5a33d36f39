//! `minfer completions`.

use anyhow::Result;

use crate::args::{CompletionsArgs, definition};

/// Prints the completion script of a shell.
pub(super) fn completions(args: &CompletionsArgs) -> Result<()> {
    clap_complete::generate(args.shell, &mut definition(), "minfer", &mut std::io::stdout().lock());
    Ok(())
}
