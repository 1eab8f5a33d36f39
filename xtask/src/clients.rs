//! `cargo xtask clients`: a server of the built binary, and the clients that people use.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{models, workspace};

/// What the checks need, from the workspace's root.
const REQUIREMENTS: &str = "tools/clients/requirements.txt";
/// The checks, from the workspace's root.
const CHECKS: &str = "tools/clients/check.py";

/// Check the server with the Python packages `openai`, `anthropic` and `ollama`.
///
/// Installs them below target/, starts `minfer serve` with a small model on a free port, and runs
/// tools/clients/check.py against it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model to serve, a name of the catalogue
    #[arg(long, default_value = "smollm2")]
    model: String,
}

impl Default for Args {
    fn default() -> Args {
        Args { model: "smollm2".to_owned() }
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let cache = models::cache()?;
    models::fetch(&cache, vec![args.model.as_str()])?;
    let packages = install()?;
    let mut server = Server::start(&args.model)?;
    let checks = Command::new("python3")
        .arg(workspace::root().join(CHECKS))
        .arg(server.url()?)
        .env("PYTHONPATH", packages)
        .status()
        .context("cannot run python3")?;
    if !checks.success() {
        bail!("a client could not use the server");
    }
    Ok(())
}

/// Installs the clients' packages, unless they are there; returns their folder.
fn install() -> Result<std::path::PathBuf> {
    let requirements = workspace::root().join(REQUIREMENTS);
    let wanted = fs::read_to_string(&requirements).with_context(|| format!("cannot read {REQUIREMENTS}"))?;
    let folder = workspace::root().join("target/clients");
    let mark = folder.join("requirements.txt");
    if fs::read_to_string(&mark).is_ok_and(|installed| installed == wanted) {
        return Ok(folder);
    }
    let _ = fs::remove_dir_all(&folder);
    let words = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-warn-conflicts",
        "--root-user-action=ignore",
        "--target",
    ];
    workspace::run(Command::new("python3").args(words).arg(&folder).arg("--requirement").arg(&requirements))?;
    fs::write(mark, wanted)?;
    Ok(folder)
}

/// A server that ends with this.
struct Server {
    process: Child,
    url: Option<String>,
}

impl Server {
    fn start(model: &str) -> Result<Server> {
        let words = ["run", "--quiet", "--package", "minfer-cli", "--", "serve", model, "--port", "0"];
        let mut command = workspace::cargo();
        let process =
            command.args(words).stderr(Stdio::piped()).spawn().context("cannot start the server")?;
        Ok(Server { process, url: None })
    }

    /// Its address, once the model is loaded.
    fn url(&mut self) -> Result<String> {
        let stderr = self.process.stderr.take().context("the address was taken before")?;
        let mut lines = BufReader::new(stderr).lines();
        for line in lines.by_ref() {
            let line = line?;
            if let Some((_, url)) = line.split_once("listening on ") {
                self.url = Some(url.trim().to_owned());
            }
            if line.contains(" is ready: ") {
                // A server that nobody listens to must not wait for its log to be read.
                std::thread::spawn(move || lines.for_each(drop));
                return self.url.clone().context("the server named no address");
            }
            eprintln!("{line}");
        }
        bail!("the server ended before it was ready")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checks_are_there() {
        assert!([CHECKS, REQUIREMENTS].iter().all(|path| workspace::root().join(path).is_file()));
    }
}
