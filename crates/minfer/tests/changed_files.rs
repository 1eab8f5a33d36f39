//! A model file that somebody changes while it is read is an error, and nothing of it runs.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use minfer::{LoadOptions, Loaded, Machine, MachineOptions, ModelFile};
use minfer_testkit::synthetic::{self, Family};

/// The error of a load in which `change` happens once `after` weights have been packed.
fn refusal(after: usize, change: &(impl Fn(&Path) + Sync)) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    fs::write(&path, synthetic::file(Family::Llama)).unwrap();
    let file = ModelFile::open(&path).unwrap();
    let machine = Machine::new(&MachineOptions { threads: Some(2), ..MachineOptions::default() }).unwrap();
    let packed = AtomicUsize::new(0);
    if after == 0 {
        change(&path);
    }
    let loaded = Loaded::with_progress(&machine, &file, &LoadOptions::default(), |_| {
        if packed.fetch_add(1, Ordering::Relaxed) + 1 == after {
            change(&path);
        }
    });
    assert!(packed.into_inner() >= after, "so many weights were packed");
    let text = loaded.err().map(|error| error.to_string());
    assert!(
        text.iter().all(|text| text.starts_with(path.to_str().unwrap()) && !text.contains('\n')),
        "{text:?}"
    );
    text
}

#[test]
fn a_file_that_is_cut_short_while_it_loads_is_an_error() {
    for after in [0, 1, 7, 20] {
        for left in [0, 100, 20_000] {
            let cut = |path: &Path| OpenOptions::new().write(true).open(path).unwrap().set_len(left).unwrap();
            let text = refusal(after, &cut).expect("an error");
            let named = text.contains("tensor") && text.contains("was cut short while it was open");
            assert!(named && text.ends_with(&format!("has {left} bytes")), "{text}");
        }
    }
}

#[test]
fn a_file_that_is_written_to_while_it_loads_is_an_error() {
    for after in [0, 20] {
        let touch = |path: &Path| {
            let later = SystemTime::now() + Duration::from_secs(1);
            OpenOptions::new().write(true).open(path).unwrap().set_modified(later).unwrap();
        };
        let text = refusal(after, &touch).expect("an error");
        assert!(text.contains("was written to while it was being read"), "{text}");
    }
}

#[test]
fn a_file_that_is_replaced_while_it_loads_is_read_to_its_end() {
    let replace = |path: &Path| {
        let other = path.with_extension("new");
        fs::write(&other, b"another file").unwrap();
        fs::rename(other, path).unwrap();
    };
    assert_eq!(refusal(3, &replace), None);
}
