//! What tests read of llama.cpp's source package: vocabularies with inputs and token ids, and chat
//! templates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use minfer_hub::CacheDir;

use crate::workspace;

/// The source package.
const PACKAGE: &str = "llama-cpp-python";
const VERSION: &str = "0.3.36";
const SHA256: &str = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e";

/// The folder of the vectors: `ggml-vocab-NAME.gguf` beside its `.inp` and `.out`, and
/// `templates/NAME.jinja`.
///
/// Made under the cache where it is not there yet, or not whole. The package is brought by the
/// machine's own pip and is not built.
pub(crate) fn fetch(cache: &CacheDir) -> Result<PathBuf> {
    let root = cache.path().join(".vectors");
    let folder = root.join(format!("{PACKAGE}-{VERSION}"));
    if folder.is_dir() {
        return Ok(folder);
    }
    let partial = root.join(format!("{PACKAGE}-{VERSION}.partial-{}", std::process::id()));
    fs::create_dir_all(&partial).with_context(|| format!("cannot make {}", partial.display()))?;
    let whole = bring(&partial).and_then(|unpacked| {
        // Another run may have been quicker: its folder is as good.
        match fs::rename(&unpacked, &folder) {
            Err(_) if folder.is_dir() => Ok(()),
            renamed => renamed.with_context(|| format!("cannot make {}", folder.display())),
        }
    });
    fs::remove_dir_all(&partial).with_context(|| format!("cannot remove {}", partial.display()))?;
    whole.map(|()| folder)
}

/// Downloads the package into `folder` and unpacks what is wanted of it; the folder with what was
/// unpacked.
fn bring(folder: &Path) -> Result<PathBuf> {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--no-binary", PACKAGE, &format!("{PACKAGE}=={VERSION}"), "--dest"]).arg(folder);
    workspace::run(&mut pip).context("a Python 3 with pip is needed to fetch test vectors")?;
    let archive = folder.join(format!("{}-{VERSION}.tar.gz", PACKAGE.replace('-', "_")));
    let unpacked = folder.join("unpacked");
    let mut unpack = Command::new("python3");
    unpack.arg(workspace::root().join("xtask/python/unpack_vectors.py"));
    workspace::run(unpack.arg(&archive).arg(SHA256).arg(&unpacked))?;
    Ok(unpacked)
}
