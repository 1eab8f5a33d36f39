//! Where the workspace is, and how programs are run in it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// The folder of the root manifest.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// The cargo that runs this, set to run in the workspace's root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Says what is run, runs it with the terminal's own streams, and fails where it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = spelled(command);
    eprintln!("$ {line}");
    let status = command.status().with_context(|| format!("cannot run `{line}`"))?;
    ensure!(status.success(), "`{line}` failed ({status})");
    Ok(())
}

/// Runs quietly and returns the standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = spelled(command);
    let done = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot run `{line}`"))?;
    ensure!(done.status.success(), "`{line}` failed ({})", done.status);
    String::from_utf8(done.stdout).with_context(|| format!("`{line}` wrote something that is not UTF-8"))
}

/// Where cargo puts what it builds.
pub(crate) fn target_dir() -> Result<PathBuf> {
    let text = output(cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&text).context("cargo metadata is not JSON")?;
    match metadata["target_directory"].as_str() {
        Some(path) => Ok(PathBuf::from(path)),
        None => bail!("cargo metadata names no target directory"),
    }
}

/// Builds the program in release mode and returns its path.
pub(crate) fn release_binary() -> Result<PathBuf> {
    run(cargo().args(["build", "--release", "--package", "minfer-cli", "--bin", "minfer"]))?;
    Ok(target_dir()?.join("release").join(format!("minfer{}", std::env::consts::EXE_SUFFIX)))
}

fn spelled(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    let set = command.get_envs().filter_map(|(key, value)| {
        value.map(|value| format!("{}={}", key.to_string_lossy(), quoted(&value.to_string_lossy())))
    });
    let args = command.get_args().map(|arg| quoted(&arg.to_string_lossy()));
    set.chain([name]).chain(args).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    if word.is_empty() || word.contains([' ', '"', '\'', '$']) {
        format!("'{word}'")
    } else {
        word.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_spelled_as_typed() {
        let mut command = Command::new("/usr/bin/cargo");
        command.args(["test", "--", "a b"]).env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(spelled(&command), "RUSTDOCFLAGS='-D warnings' cargo test -- 'a b'");
    }

    #[test]
    fn the_root_holds_the_workspace() {
        assert!(root().join("crates").is_dir());
    }
}
