//! `cargo xtask test`: fetches what tests read and runs all tests.

use anyhow::Result;

use crate::{clients, models, vectors, workspace};

/// The folder of the real models, for `testkit::fetched`.
const ENV_TEST_MODELS: &str = "MINFER_TEST_MODELS";

/// The folder of llama.cpp's vocabularies and chat templates, for `testkit::fetched`.
const ENV_TEST_VECTORS: &str = "MINFER_TEST_VECTORS";

/// The module of the tests that read the larger models, in each crate that has some.
const LARGER_MODELS: &str = "larger_models::";

/// The module of the tests that take many minutes, in each crate that has some.
const NIGHTLY: &str = "nightly::";

/// The module of the programs that measure speed and assert nothing.
const MEASUREMENTS: &str = "speed::";

/// Fetch the real models and the vectors that tests read, then run every test of the workspace.
///
/// Runs unit, integration and documentation tests, optimised. Tests that read a real model, or a
/// vocabulary or chat template of llama.cpp's source package, are marked `#[ignore]`. This command
/// fetches those files, names their folders in MINFER_TEST_MODELS and MINFER_TEST_VECTORS, and runs
/// ignored tests too; a missing file fails its test. Tests of the larger models run with
/// --all-models, full products of the contract with --nightly. A run of the whole workspace ends with
/// `cargo xtask clients`.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Args {
    /// Also fetch and test the larger models of the catalogue
    #[arg(long, conflicts_with = "no_models")]
    all_models: bool,

    /// Also run the tests that take many minutes
    #[arg(long, conflicts_with = "no_models")]
    nightly: bool,

    /// Fetch nothing; tests that read real models or vectors are ignored
    #[arg(long)]
    no_models: bool,

    /// Test only this package; may be given several times
    #[arg(short, long = "package", value_name = "PACKAGE")]
    packages: Vec<String>,

    /// Arguments for `cargo test`, such as a test's name or `-- --nocapture`
    #[arg(last = true, value_name = "ARGUMENT")]
    rest: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut command = workspace::cargo();
    command.args(cargo_args(args)).env_remove(ENV_TEST_MODELS).env_remove(ENV_TEST_VECTORS);
    if !args.no_models {
        let cache = models::cache()?;
        models::fetch(&cache, if args.all_models { models::all() } else { models::TESTED.to_vec() })?;
        command.env(ENV_TEST_MODELS, cache.path()).env(ENV_TEST_VECTORS, vectors::fetch(&cache)?);
    }
    workspace::run(&mut command)?;
    match args.is_whole() {
        true => clients::run(&clients::Args::default()),
        false => Ok(()),
    }
}

impl Args {
    /// Whether nothing is left out of what a plain run does.
    fn is_whole(&self) -> bool {
        !self.no_models && self.packages.is_empty() && self.rest.is_empty()
    }
}

fn cargo_args(args: &Args) -> Vec<String> {
    let mut words = vec!["test".to_owned()];
    match args.packages.as_slice() {
        [] => words.push("--workspace".to_owned()),
        packages => words.extend(packages.iter().flat_map(|name| ["--package".to_owned(), name.clone()])),
    }
    let mut rest = args.rest.splitn(2, |word| word == "--");
    words.extend(rest.next().unwrap_or_default().iter().cloned());
    let of_harness = rest.next().unwrap_or_default();
    if !args.no_models || !of_harness.is_empty() {
        words.push("--".to_owned());
    }
    if !args.no_models {
        words.push("--include-ignored".to_owned());
        let skipped = [(LARGER_MODELS, args.all_models), (NIGHTLY, args.nightly), (MEASUREMENTS, false)];
        for (module, _) in skipped.into_iter().filter(|&(_, is_wanted)| !is_wanted) {
            words.extend(["--skip", module].map(str::to_owned));
        }
    }
    words.extend(of_harness.iter().cloned());
    words
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn line(args: &[&str]) -> String {
        cargo_args(&Parsed::parse_from(args).args).join(" ")
    }

    #[derive(clap::Parser)]
    #[command(no_binary_name = true)]
    struct Parsed {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn the_whole_workspace_unless_packages_are_named() {
        assert_eq!(line(&["--no-models"]), "test --workspace");
        assert_eq!(line(&["--no-models", "-p", "a", "-p", "b"]), "test --package a --package b");
    }

    #[test]
    fn tests_of_what_was_fetched_are_run() {
        assert_eq!(
            line(&[]),
            "test --workspace -- --include-ignored --skip larger_models:: --skip nightly:: --skip speed::"
        );
        let words = line(&["--all-models"]);
        assert_eq!(words, "test --workspace -- --include-ignored --skip nightly:: --skip speed::");
        let words = line(&["--all-models", "--nightly"]);
        assert_eq!(words, "test --workspace -- --include-ignored --skip speed::");
    }

    #[test]
    fn arguments_go_to_cargo_and_to_the_tests() {
        assert_eq!(line(&["--no-models", "--", "--lib"]), "test --workspace --lib");
        let words = ["--no-models", "-p", "a", "--", "name", "--", "--nocapture"];
        assert_eq!(line(&words), "test --package a name -- --nocapture");
        let words = ["--all-models", "--nightly", "--", "name", "--", "--nocapture"];
        assert_eq!(line(&words), "test --workspace name -- --include-ignored --skip speed:: --nocapture");
    }
}
