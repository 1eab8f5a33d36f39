//! `cargo xtask size`: size of the release binary and lines of each crate.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::workspace;

/// Print the release binary's size and the lines of each crate, as a Markdown table.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Count lines only; build nothing
    #[arg(long)]
    no_build: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let binary = if args.no_build { None } else { Some(workspace::release_binary()?) };
    print!("{}", table(&crates()?)?);
    if let Some(binary) = binary {
        let bytes = fs::metadata(&binary).with_context(|| format!("no binary {}", binary.display()))?.len();
        println!("\nrelease binary: {bytes} bytes ({:.1} MiB)", bytes as f64 / f64::from(1 << 20));
    }
    Ok(())
}

/// Lines of Rust by kind, over a number of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lines {
    files: usize,
    code: usize,
    comment: usize,
    blank: usize,
    /// All lines of the longest file.
    longest: usize,
}

impl Lines {
    fn of(source: &str) -> Self {
        let mut lines = Lines { files: 1, longest: source.lines().count(), ..Lines::default() };
        for line in source.lines().map(str::trim) {
            match line {
                "" => lines.blank += 1,
                _ if line.starts_with("//") => lines.comment += 1,
                _ => lines.code += 1,
            }
        }
        lines
    }

    fn add(&mut self, other: Lines) {
        self.files += other.files;
        self.code += other.code;
        self.comment += other.comment;
        self.blank += other.blank;
        self.longest = self.longest.max(other.longest);
    }
}

fn table(crates: &[PathBuf]) -> Result<String> {
    let mut text = String::from(
        "| crate | files | code | comments | blank | longest file |\n| --- | ---: | ---: | ---: | ---: | ---: |\n",
    );
    let mut total = Lines::default();
    for folder in crates {
        let lines = count(folder)?;
        total.add(lines);
        text += &line(&folder.file_name().unwrap_or_default().to_string_lossy(), lines);
    }
    Ok(text + &line("all", total))
}

fn line(name: &str, lines: Lines) -> String {
    let Lines { files, code, comment, blank, longest } = lines;
    format!("| {name} | {files} | {code} | {comment} | {blank} | {longest} |\n")
}

/// The folders of all crates, by name, and that of this one last.
fn crates() -> Result<Vec<PathBuf>> {
    let mut found = children(&workspace::root().join("crates"))?;
    found.retain(|path| path.join("Cargo.toml").is_file());
    found.push(workspace::root().join("xtask"));
    Ok(found)
}

/// The lines of all Rust files under a folder.
fn count(folder: &Path) -> Result<Lines> {
    let mut lines = Lines::default();
    for path in children(folder)? {
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                lines.add(count(&path)?);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            lines.add(Lines::of(
                &fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?,
            ));
        }
    }
    Ok(lines)
}

/// What a folder holds, by name.
fn children(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_by_kind() {
        let one = Lines::of("//! Doc.\n\nfn a() {\n    // why\n    b(); // how\n}\n");
        assert_eq!(one, Lines { files: 1, code: 3, comment: 2, blank: 1, longest: 6 });
        let mut two = one;
        two.add(Lines::of("x\n"));
        assert_eq!(two, Lines { files: 2, code: 4, comment: 2, blank: 1, longest: 6 });
    }

    #[test]
    fn every_crate_is_in_the_table() {
        let text = table(&crates().unwrap()).unwrap();
        for name in ["hub", "cli", "xtask", "all"] {
            assert!(text.contains(&format!("\n| {name} | ")), "{text}");
        }
    }
}
