//! A folder with tiny models, and the binary run in it.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
#[cfg(target_os = "linux")]
use std::sync::Arc;

use minfer_testkit::synthetic::{self, Family};
use serde_json::Value;

/// A folder of its own for a test; gone afterwards.
pub(crate) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// An empty folder.
    pub(crate) fn new() -> Place {
        Place { folder: tempfile::tempdir().expect("a folder") }
    }

    /// A folder with `tiny.gguf`, a model of this family.
    pub(crate) fn with(family: Family) -> Place {
        let place = Place::new();
        synthetic::write(family, place.path("tiny.gguf")).expect("written");
        place
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).expect("written");
    }

    /// A command line of `minfer`, in this folder, with an empty cache of models and none of the
    /// caller's variables.
    pub(crate) fn minfer(&self, arguments: &[&str]) -> Run {
        let mut run = self.program(env!("CARGO_BIN_EXE_minfer"));
        run.command.args(arguments);
        run
    }

    /// Another program in the same surroundings.
    pub(crate) fn program(&self, program: &str) -> Run {
        #[cfg(target_os = "linux")]
        restore_signals();
        let mut command = Command::new(program);
        command.current_dir(self.folder.path());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("MINFER_") {
                command.env_remove(name);
            }
        }
        command.env("MINFER_MODELS", self.path("models")).env("COLUMNS", "100").env("NO_COLOR", "1");
        Run { command, stdin: Vec::new() }
    }
}

/// Sees to it that programs end on the signals that this process was told to ignore, as one in the
/// background of a shell or under `nohup` is. A program inherits what its parent ignores, but not
/// what it handles.
#[cfg(target_os = "linux")]
fn restore_signals() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let text = std::fs::read_to_string("/proc/self/status").expect("a process");
        let mask = text.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask").trim();
        let ignored = u64::from_str_radix(mask, 16).expect("hexadecimal");
        for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
            if ignored & 1 << (signal - 1) != 0 {
                signal_hook::flag::register(signal, Arc::default()).expect("a handler");
            }
        }
    });
}

/// A command line that is about to run.
pub(crate) struct Run {
    /// The command.
    pub(crate) command: Command,
    stdin: Vec<u8>,
}

impl Run {
    /// Sets what it reads from stdin.
    pub(crate) fn stdin(mut self, bytes: impl AsRef<[u8]>) -> Run {
        self.stdin = bytes.as_ref().to_vec();
        self
    }

    /// Adds arguments.
    #[cfg(target_os = "linux")]
    pub(crate) fn arguments(mut self, arguments: &[&str]) -> Run {
        self.command.args(arguments);
        self
    }

    /// Sets a variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Run {
        self.command.env(name, value);
        self
    }

    /// Starts it, all its streams piped and nothing written to it.
    pub(crate) fn start(mut self) -> Child {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        self.command.spawn().expect("started")
    }

    /// Runs it to its end.
    pub(crate) fn output(mut self) -> Output {
        let input = std::mem::take(&mut self.stdin);
        let mut child = self.start();
        let mut stdin = child.stdin.take().expect("piped");
        // One that does not read its stdin may end before all is written.
        let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let output = child.wait_with_output().expect("waited for");
        writer.join().expect("no panic");
        output
    }

    /// Runs it; it must succeed. Gives stdout and stderr.
    pub(crate) fn both(self) -> (String, String) {
        let output = self.output();
        let (stdout, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(0), "stderr: {stderr}");
        (stdout, stderr)
    }

    /// Runs it; it must succeed. Gives stdout.
    pub(crate) fn stdout(self) -> String {
        self.both().0
    }

    /// Runs it; it must succeed. Gives stdout as JSON.
    pub(crate) fn json(self) -> Value {
        let text = self.stdout();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Runs it; it must end with exit code 1, nothing on stdout and one line on stderr, which is
    /// given.
    pub(crate) fn failure(self) -> String {
        let output = self.output();
        let (stdout, stderr) = texts(&output);
        assert_eq!((output.status.code(), stdout.as_str()), (Some(1), ""), "stderr: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        let message = stderr.trim_end().strip_prefix("error: ").unwrap_or_else(|| panic!("{stderr}"));
        assert!(!message.contains("a bug in minfer"), "{message}");
        message.to_owned()
    }

    /// Runs it; it must end with exit code 1, perhaps after some answers. Gives the last line of
    /// stderr.
    pub(crate) fn last_error(self) -> String {
        let output = self.output();
        let (_, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "stderr: {stderr}");
        let last = stderr.lines().last().unwrap_or_default();
        last.strip_prefix("error: ").unwrap_or_else(|| panic!("{stderr}")).to_owned()
    }

    /// Runs it; it must end with exit code 2 and nothing on stdout. Gives stderr.
    pub(crate) fn usage(self) -> String {
        let output = self.output();
        let (stdout, stderr) = texts(&output);
        assert_eq!((output.status.code(), stdout.as_str()), (Some(2), ""), "stderr: {stderr}");
        stderr
    }
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// Lines of JSON.
pub(crate) fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

/// Checks that a text has all of these words.
pub(crate) fn has(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
}
