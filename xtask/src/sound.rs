//! `cargo xtask sound`: the checkers of memory safety and of data races over the CPU backend.
//!
//! They need tools that a stable toolchain does not have, and minutes to hours, so they stay
//! outside of the CI run. What is missing is named before anything runs.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::workspace;

/// The target that sanitizers instrument.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What Miri runs in a reasonable time: all that shares memory or casts bytes, but no large
/// product.
const MIRI_TESTS: &[&str] = &[
    "threads::",
    "memory::",
    "arena::",
    "backend::",
    "ops::elementwise",
    "ops::norm",
    "ops::rope",
    "quantise::tests::rows",
];

/// Check the CPU backend with Miri, ThreadSanitizer and loom.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// One checker; absent: all of them
    #[arg(value_enum)]
    checker: Option<Checker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Checker {
    /// Unit tests of the CPU backend under Miri: undefined behaviour
    Miri,
    /// The synthetic models and the CPU backend's pool under ThreadSanitizer: data races
    Tsan,
    /// Barrier and pool under loom: every interleaving of a few threads
    Loom,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let all = [Checker::Loom, Checker::Tsan, Checker::Miri];
    let mut failures = Vec::new();
    for checker in all.into_iter().filter(|checker| args.checker.is_none_or(|only| only == *checker)) {
        let outcome = match checker {
            Checker::Miri => miri(),
            Checker::Tsan => tsan(),
            Checker::Loom => loom(),
        };
        match outcome {
            Ok(()) => println!("{checker:?}: no fault"),
            Err(error) => failures.push(format!("{checker:?}: {error:#}")),
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    bail!("{}", failures.join("\n"))
}

fn miri() -> Result<()> {
    needs(&[
        (nightly(&["--version"]), "a nightly toolchain (`rustup toolchain install nightly`)"),
        (nightly(&["miri", "--version"]), "Miri (`rustup component add --toolchain nightly miri rust-src`)"),
    ])?;
    let mut command = nightly(&["miri", "test", "--package", "minfer-cpu", "--lib", "--"]);
    // Isolation hides the clock and the process number, which the tests read.
    command.env("MIRIFLAGS", "-Zmiri-disable-isolation").args(MIRI_TESTS);
    workspace::run(&mut command)
}

fn tsan() -> Result<()> {
    needs(&[
        (nightly(&["--version"]), "a nightly toolchain (`rustup toolchain install nightly`)"),
        (sources(), "the standard library's sources (`rustup component add --toolchain nightly rust-src`)"),
    ])?;
    let build = ["-Zbuild-std", "--target", TARGET, "--target-dir", "target/tsan"];
    for tests in [
        &["--package", "minfer-cpu", "--lib", "--", "threads::", "backend::"][..],
        &["--package", "minfer", "--test", "synthetic"],
    ] {
        let mut command = nightly(&["test"]);
        command.args(build).args(tests).env("RUSTFLAGS", "-Zsanitizer=thread");
        workspace::run(&mut command)?;
    }
    Ok(())
}

fn loom() -> Result<()> {
    let manifest = "crates/cpu/loom/Cargo.toml";
    let target = workspace::target_dir()?.join("loom");
    let mut command = workspace::cargo();
    command.args(["run", "--release", "--manifest-path", manifest, "--target-dir"]).arg(target);
    workspace::run(&mut command)
}

/// Cargo of the nightly toolchain, by way of rustup.
fn nightly(args: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    // Set by the cargo that runs this one; they would choose its toolchain again.
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    command.current_dir(workspace::root()).arg("+nightly").args(args);
    command
}

/// A command that succeeds where the nightly toolchain has the standard library's sources.
fn sources() -> Command {
    let mut rustc = Command::new("rustc");
    rustc.env_remove("RUSTUP_TOOLCHAIN").args(["+nightly", "--print", "sysroot"]);
    let sysroot = rustc.output().map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let library = PathBuf::from(sysroot.unwrap_or_default()).join("lib/rustlib/src/rust/library/Cargo.lock");
    let mut test = Command::new("test");
    test.arg("-f").arg(library);
    test
}

/// Fails with the list of what is missing.
fn needs(tools: &[(Command, &str)]) -> Result<()> {
    let mut missing = Vec::new();
    for (command, what) in tools {
        let mut again = Command::new(command.get_program());
        again.args(command.get_args()).env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
        let status = again.stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !status.is_ok_and(|status| status.success()) {
            missing.push(*what);
        }
    }
    if missing.is_empty() { Ok(()) } else { bail!("missing: {}", missing.join(", ")) }
}
