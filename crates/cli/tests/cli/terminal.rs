//! `minfer` at a terminal.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use minfer_testkit::synthetic::Family;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

use crate::place::{Place, Run};

const TEMPLATE: &str = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}";
const LONG: Duration = Duration::from_secs(60);

/// Bytes that are on their way to the screen are there by then.
const SETTLED: Duration = Duration::from_millis(300);

/// A program at a terminal of its own.
pub(crate) struct Talk {
    keys: File,
    slave: File,
    child: Child,
    screen: Receiver<u8>,
    shown: Vec<u8>,
}

impl Talk {
    /// A conversation.
    fn start(place: &Place, flags: &[&str]) -> Talk {
        let words = ["chat", "tiny.gguf", "--ignore-eos", "--temp", "0", "--chat-template", TEMPLATE];
        Talk::of(place.minfer(&[&words, flags].concat()))
    }

    pub(crate) fn of(mut run: Run) -> Talk {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).expect("granted");
        unlockpt(&master).expect("unlocked");
        let name = ptsname(&master, Vec::new()).expect("a name").into_string().expect("text");
        let open = || File::options().read(true).write(true).open(&name).expect("opened");
        let streams = [open(), open(), open()].map(Stdio::from);
        let [stdin, stdout, stderr] = streams;
        run.command.stdin(stdin).stdout(stdout).stderr(stderr).env("TERM", "xterm");
        let child = run.command.spawn().expect("started");
        let keys = File::from(master);
        let (mut reader, (shown, screen)) = (keys.try_clone().expect("a second handle"), channel());
        std::thread::spawn(move || {
            let mut byte = [0];
            while reader.read(&mut byte).is_ok_and(|count| count == 1) && shown.send(byte[0]).is_ok() {}
        });
        Talk { keys, slave: open(), child, screen, shown: Vec::new() }
    }

    /// Waits until words are shown, after those that were waited for before.
    pub(crate) fn until(&mut self, words: &str) {
        let end = Instant::now() + LONG;
        self.shown.clear();
        while !self.shown.ends_with(words.as_bytes()) {
            let left = end.saturating_duration_since(Instant::now());
            let byte = self.screen.recv_timeout(left);
            let shown = || format!("no {words:?} in {:?}", String::from_utf8_lossy(&self.shown));
            let byte = byte.unwrap_or_else(|_| panic!("{}", shown()));
            self.shown.push(byte);
        }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("pressed");
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.child.id().to_string()]).status().expect("kill");
        assert!(status.success());
    }

    fn code(self) -> Option<i32> {
        self.end().0.code()
    }

    /// What is shown in this time.
    pub(crate) fn for_a_while(&mut self, time: Duration) -> String {
        let (end, mut shown) = (Instant::now() + time, Vec::new());
        while let Ok(byte) = self.screen.recv_timeout(end.saturating_duration_since(Instant::now())) {
            shown.push(byte);
        }
        String::from_utf8_lossy(&shown).into_owned()
    }

    /// Waits for its end; gives what was shown since words were last waited for.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let end = Instant::now() + LONG;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait().expect("waited for") {
                return (status, self.for_a_while(SETTLED));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("it goes on: {:?}", String::from_utf8_lossy(&self.screen.try_iter().collect::<Vec<_>>()));
    }

    fn echoes(&self) -> bool {
        tcgetattr(&self.slave)
            .expect("a terminal")
            .local_modes
            .contains(LocalModes::ECHO | LocalModes::ICANON)
    }
}

/// It ends with the test at the latest.
impl Drop for Talk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// While the model loads, and while it answers.
#[test]
fn lines_that_were_typed_ahead_are_each_answered() {
    let place = Place::with(Family::Llama);
    let mut talk = Talk::start(&place, &["-n", "2", "--facts"]);
    talk.press("one\rtwo\r\"\"\"th\rree\"\"\"\r");
    for turn in ["\"turn\":1", "\"turn\":2", "\"turn\":3"] {
        talk.until(turn);
    }
    talk.until("> ");
    talk.press("/exit\r");
    assert_eq!(talk.code(), Some(0));
}

#[test]
fn a_request_to_end_saves_and_leaves_the_terminal_as_it_was() {
    let place = Place::with(Family::Llama);
    for (name, code) in [("-TERM", 143), ("-HUP", 129)] {
        let mut talk = Talk::start(&place, &["-n", "4", "--session", "a.session"]);
        talk.until("> ");
        talk.press("one\r");
        talk.until("seed");
        talk.until("> ");
        talk.press("half a li");
        talk.until("half a li");
        assert!(!talk.echoes(), "an editor has the terminal");
        talk.signal(name);
        let slave = talk.slave.try_clone().expect("a handle");
        assert_eq!(talk.code(), Some(code));
        let modes = tcgetattr(&slave).expect("a terminal").local_modes;
        assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON), "{name}");
        let length = place.path("a.session").metadata().expect("saved").len();
        assert!(length > 1000, "{length}");
    }
    let (_, stderr) = place
        .minfer(&["chat", "tiny.gguf", "--chat-template", TEMPLATE, "--session", "a.session"])
        .stdin("/stats\n")
        .both();
    assert!(stderr.starts_with("4 messages"), "{stderr}");
}

#[test]
fn ctrl_c_abandons_a_message_of_several_lines() {
    let place = Place::with(Family::Llama);
    let mut talk = Talk::start(&place, &["-n", "4"]);
    talk.until("> ");
    talk.press("\"\"\"begun\r");
    talk.until(". ");
    talk.press("\u{3}");
    talk.until("(the message is dropped)");
    talk.until("> ");
    talk.press("\u{3}");
    talk.until("(Ctrl-D or /exit ends the conversation)");
    talk.until("> ");
    talk.press("/stats\r");
    talk.until("0 messages");
    talk.until("> ");
    talk.press("/exit\r");
    assert_eq!(talk.code(), Some(0));
}

#[test]
fn ctrl_c_stops_an_answer_and_not_the_conversation() {
    let place = Place::with(Family::Llama);
    let mut talk = Talk::start(&place, &["-n", "-1", "-c", "64", "--context-shift"]);
    for _ in 0..2 {
        talk.until("> ");
        talk.press("one\r");
        talk.until("\n");
        std::thread::sleep(Duration::from_millis(200));
        talk.signal("-INT");
        talk.until("(stopped)");
    }
    talk.until("> ");
    talk.press("\u{4}");
    assert_eq!(talk.code(), Some(0));
}
