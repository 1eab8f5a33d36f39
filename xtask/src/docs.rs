//! `cargo xtask docs`: writes the pages of `docs/` that are generated from tables in the code.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::{support, workspace};

/// The page of what is read and how it is verified, from the workspace's root.
const SUPPORT: &str = "docs/support.md";

/// Write the pages that are made from the code's own tables.
///
/// docs/support.md lists families, types, tokenizers and chat templates, each with how it was
/// verified. A row of a table that has no recorded verification is an error.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write nothing; fail where a page is not what the tables say
    #[arg(long)]
    check: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let page = support::page()?;
    let path = workspace::root().join(SUPPORT);
    if args.check {
        return check(&fs::read_to_string(&path).unwrap_or_default(), &page);
    }
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))
}

fn check(found: &str, wanted: &str) -> Result<()> {
    ensure!(found == wanted, "{SUPPORT} is not what the code's tables say: run `cargo xtask docs`");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_what_the_tables_say() {
        run(&Args { check: true }).unwrap();
    }

    #[test]
    fn an_altered_page_is_seen() {
        assert!(check("a", "a").is_ok());
        assert!(check("a", "b").unwrap_err().to_string().contains("cargo xtask docs"));
    }
}
