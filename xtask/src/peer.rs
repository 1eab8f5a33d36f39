//! Runs llama.cpp for `compare`, in a Python environment of its own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::spec::Spec;
use crate::workspace;

/// Packages of the environment. Installing the first compiles llama.cpp for this machine.
const PACKAGES: &[&str] = &["llama-cpp-python==0.3.36", "numpy"];

/// Flags for the compilers of llama.cpp.
///
/// The AMX header of GCC 12 declares that `ldtilecfg` reads 8 bytes, and it reads 64: removal of
/// dead stores then drops most of the tile configuration, and the first matrix product faults. That
/// pass is off, so that AMX can be used.
const COMPILER_FLAGS: &str = "-fno-dse";

/// A Python that can load llama.cpp.
pub(crate) struct Peer {
    python: PathBuf,
}

impl Peer {
    /// A Python that has the packages already.
    pub(crate) fn at(python: &Path) -> Self {
        Self { python: python.to_path_buf() }
    }

    /// The environment under the target folder, made where it is not there yet.
    pub(crate) fn make() -> Result<Self> {
        let folder = workspace::target_dir()?.join("peer");
        let python = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
        let complete = folder.join("complete");
        let wanted = format!("{} {COMPILER_FLAGS}", PACKAGES.join(" "));
        if std::fs::read_to_string(&complete).is_ok_and(|had| had == wanted) {
            return Ok(Self { python });
        }
        workspace::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))
            .context("a Python 3 with its venv module is needed (package python3-venv)")?;
        workspace::run(&mut install(&python))
            .context("llama.cpp is built from its source: a C++ compiler is needed")?;
        std::fs::write(&complete, wanted).with_context(|| format!("cannot write {}", complete.display()))?;
        Ok(Self { python })
    }

    /// Tokens per second of llama.cpp: the median of `reps`, after a warm-up.
    pub(crate) fn speed(&self, model: &Path, spec: Spec, reps: u32, threads: usize) -> Result<f64> {
        let mut command = Command::new(&self.python);
        command.arg(workspace::root().join("xtask/python/peer_speed.py")).arg(model);
        command.args(["--test", &spec.to_string()]);
        command.args(["--reps", &reps.to_string(), "--threads", &threads.to_string()]);
        let text = workspace::output(&mut command)?;
        let answer: serde_json::Value =
            serde_json::from_str(&text).context("the script's answer is not JSON")?;
        answer["tok_s"].as_f64().with_context(|| format!("the script's answer has no tok_s: {text}"))
    }
}

/// Builds the packages for this machine. Without pip's cache, which may have them built with other
/// flags.
fn install(python: &Path) -> Command {
    let mut command = Command::new(python);
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-cache-dir"]);
    command.args(PACKAGES).env("CFLAGS", COMPILER_FLAGS).env("CXXFLAGS", COMPILER_FLAGS);
    command
}
