//! `cargo xtask ci`: formatting, clippy, documentation and all tests.

use anyhow::Result;

use crate::{test, workspace};

/// Check formatting, lints and documentation, then run every test.
///
/// The steps: `cargo fmt --check`; `cargo clippy` over all targets with warnings denied;
/// `cargo doc` with warnings denied; `cargo xtask test`. The first that fails ends the run.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    test: test::Args,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    workspace::run(workspace::cargo().args(["fmt", "--all", "--check"]))?;
    workspace::run(workspace::cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "--deny",
        "warnings",
    ]))?;
    workspace::run(
        workspace::cargo()
            .args(["doc", "--workspace", "--no-deps", "--all-features"])
            .env("RUSTDOCFLAGS", "--deny warnings"),
    )?;
    test::run(&args.test)
}
