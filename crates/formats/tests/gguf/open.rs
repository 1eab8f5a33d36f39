//! Opening by path.

use std::fs;
use std::path::PathBuf;

use minfer_formats::gguf::{Cause, File, Writer};
use minfer_tensor::DType;

use super::raw::valid;
use super::walk::walk;

#[test]
fn a_mapped_file_reads_like_one_in_memory() {
    let path = scratch("mapped.gguf");
    fs::write(&path, valid()).unwrap();
    let mapped = File::open(&path).unwrap();
    let owned = File::parse(valid()).unwrap();
    assert_eq!(walk(&mapped), walk(&owned));
    assert_eq!(mapped.path(), Some(path.as_path()));
    assert_eq!(owned.path(), None);
    assert_eq!(mapped.total_bytes(), fs::metadata(&path).unwrap().len());
}

#[test]
fn errors_name_the_file_the_key_and_the_place() {
    let path = scratch("damaged.gguf");
    let mut bytes = valid();
    // The type of the first entry's value follows its key.
    let at = 24 + 8 + "general.architecture".len();
    bytes[at] = 99;
    fs::write(&path, bytes).unwrap();
    let error = File::open(&path).unwrap_err();
    let wanted = format!(
        "{}: key \"general.architecture\": value type 99 does not exist (at byte {at})",
        path.display()
    );
    assert_eq!(error.to_string(), wanted);
    assert_eq!((error.path(), error.offset()), (Some(path.as_path()), Some(at as u64)));
}

#[test]
fn later_errors_name_the_file_too() {
    let path = scratch("later.gguf");
    fs::write(&path, valid()).unwrap();
    let file = File::open(&path).unwrap();
    for error in [file.metadata().string("a.u8").unwrap_err(), file.require("absent").unwrap_err()] {
        assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
    }
}

#[test]
fn what_is_no_file_is_refused() {
    let missing = File::open(scratch("missing.gguf")).unwrap_err();
    assert!(matches!(missing.cause(), Cause::Io(_)) && missing.to_string().contains("missing.gguf"));
    let folder = scratch("folder.gguf");
    fs::create_dir_all(&folder).unwrap();
    assert!(matches!(File::open(&folder).unwrap_err().cause(), Cause::Directory));
    let empty = scratch("empty.gguf");
    fs::write(&empty, []).unwrap();
    let error = File::open(&empty).unwrap_err();
    assert!(error.to_string().ends_with("empty.gguf: the file is empty"), "{error}");
}

#[cfg(unix)]
#[test]
fn devices_and_pipes_are_refused_without_waiting() {
    assert!(matches!(File::open("/dev/zero").unwrap_err().cause(), Cause::NotAFile));
    let pipe = scratch("pipe.gguf");
    let _ = fs::remove_file(&pipe);
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    assert!(matches!(File::open(&pipe).unwrap_err().cause(), Cause::NotAFile));
}

#[test]
fn advice_never_changes_what_is_read() {
    let path = scratch("advice.gguf");
    let data: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
    let mut writer = Writer::new();
    writer.announce("a", DType::F32, &[250_000]).unwrap();
    writer.announce("b", DType::F32, &[1]).unwrap();
    let mut sink = writer.start(fs::File::create(&path).unwrap()).unwrap();
    sink.part(&data[..777]).unwrap();
    sink.part(&data[777..]).unwrap();
    sink.tensor("b", &[1, 2, 3, 4]).unwrap();
    sink.finish().unwrap();
    let file = File::open(&path).unwrap();
    for tensor in file.tensors() {
        file.will_need(tensor);
        assert_eq!(file.bytes(tensor)[0], data[0].max(u8::from(tensor.name() == "b")));
        file.dont_need(tensor);
    }
    assert_eq!(file.bytes(file.require("a").unwrap()), data);
    assert_eq!(file.bytes(file.require("b").unwrap()), [1, 2, 3, 4]);
}

fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("open");
    fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}
