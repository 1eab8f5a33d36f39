//! `cargo xtask test`: the one command that passes all tests.

use anyhow::Result;

use crate::{models, vectors, workspace};

/// The folder of the real models, for the tests that read them.
const ENV_TEST_MODELS: &str = "MINFER_TEST_MODELS";

/// Set to 1 where the folder has the whole catalogue, and not only the models that every run has.
const ENV_TEST_ALL_MODELS: &str = "MINFER_TEST_ALL_MODELS";

/// The folder of the vocabularies and chat templates of llama.cpp's source package, for the tests that read them.
const ENV_TEST_VECTORS: &str = "MINFER_TEST_VECTORS";

/// Fetch the real models and the vectors that tests read, then run every test of the workspace.
///
/// Runs unit, integration and documentation tests, optimised. Tests that read a real model find it in the folder
/// MINFER_TEST_MODELS, which is set here: with it a missing file is a failure; without it they say that they skip.
/// Tests of the larger models run where MINFER_TEST_ALL_MODELS is 1, which --all-models sets. Tests that read vocabularies
/// and chat templates of llama.cpp's source package find them in the folder MINFER_TEST_VECTORS in the same way.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Args {
    /// Also fetch and test the larger models of the catalogue
    #[arg(long, conflicts_with = "no_models")]
    all_models: bool,

    /// Fetch nothing; tests that read real models or vectors skip
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
    command.args(cargo_args(args)).env_remove(ENV_TEST_MODELS).env_remove(ENV_TEST_ALL_MODELS);
    command.env_remove(ENV_TEST_VECTORS);
    if !args.no_models {
        let cache = models::cache()?;
        models::fetch(&cache, if args.all_models { models::all() } else { models::TESTED.to_vec() })?;
        command.env(ENV_TEST_MODELS, cache.path()).env(ENV_TEST_VECTORS, vectors::fetch(&cache)?);
    }
    if args.all_models {
        command.env(ENV_TEST_ALL_MODELS, "1");
    }
    workspace::run(&mut command)
}

fn cargo_args(args: &Args) -> Vec<String> {
    let mut words = vec!["test".to_owned()];
    match args.packages.as_slice() {
        [] => words.push("--workspace".to_owned()),
        packages => words.extend(packages.iter().flat_map(|name| ["--package".to_owned(), name.clone()])),
    }
    words.extend(args.rest.iter().cloned());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_workspace_unless_packages_are_named() {
        assert_eq!(cargo_args(&Args::default()), ["test", "--workspace"]);
        let packages = vec!["a".to_owned(), "b".to_owned()];
        let rest = vec!["name".to_owned(), "--".to_owned(), "--nocapture".to_owned()];
        let args = Args { packages, rest, ..Args::default() };
        assert_eq!(cargo_args(&args).join(" "), "test --package a --package b name -- --nocapture");
    }
}
