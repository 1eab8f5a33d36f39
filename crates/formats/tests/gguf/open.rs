//! Opening files by path.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use minfer_formats::gguf::{Cause, File, Writer};
use minfer_tensor::DType;

use super::raw::valid;
use super::walk::walk;

#[test]
fn a_file_reads_like_one_in_memory() {
    let path = scratch("opened.gguf");
    fs::write(&path, valid()).unwrap();
    let opened = File::open(&path).unwrap();
    let owned = File::parse(valid()).unwrap();
    assert_eq!(walk(&opened), walk(&owned));
    assert_eq!(opened.path(), Some(path.as_path()));
    assert_eq!(owned.path(), None);
    assert_eq!(opened.total_bytes(), fs::metadata(&path).unwrap().len());
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
fn tensors_are_read_in_any_parts() {
    let data: Vec<u8> = (0..1_000_000u32).map(|i| (i % 251) as u8).collect();
    let file = File::open(with_two_tensors("parts.gguf", &data)).unwrap();
    let (a, b) = (file.require("a").unwrap(), file.require("b").unwrap());
    for (offset, length) in [(0, 1), (1, 999_999), (777_777, 3), (999_999, 1), (1_000_000, 0)] {
        let mut bytes = vec![0; length];
        file.read(a, offset as u64, &mut bytes).unwrap();
        assert_eq!(bytes, data[offset..offset + length]);
    }
    assert_eq!(file.read_all(a).unwrap(), data);
    assert_eq!(file.read_all(b).unwrap(), [1, 2, 3, 4]);
}

#[test]
#[should_panic(expected = "beyond the end of b")]
fn a_tensor_ends_where_it_ends() {
    let file = File::open(with_two_tensors("end.gguf", &[0; 1_000_000])).unwrap();
    file.read(file.require("b").unwrap(), 1, &mut [0; 4]).unwrap();
}

/// Headers are read in steps; where a step ends makes no difference, to errors neither.
#[test]
fn long_headers_read_like_those_in_memory() {
    let path = scratch("long.gguf");
    for bytes in [200_000, 262_100, 600_000, 3_000_000] {
        let long = "x".repeat(bytes);
        let words: Vec<String> = (0..bytes / 20).map(|i| format!("{i:012}")).collect();
        let mut writer = Writer::new();
        writer.put("words", words.as_slice()).unwrap();
        writer.put("long", long.as_str()).unwrap();
        writer.announce("a", DType::F32, &[2]).unwrap();
        let mut sink = writer.start(Vec::new()).unwrap();
        sink.tensor("a", &[0; 8]).unwrap();
        let whole = sink.finish().unwrap();
        fs::write(&path, &whole).unwrap();
        assert_eq!(walk(&File::open(&path).unwrap()), walk(&File::parse(whole.clone()).unwrap()));
        let edges = (0..4).map(|step| 262_144 << step).flat_map(|edge| [edge - 1, edge, edge + 1]);
        for length in edges.chain([whole.len() - 70, whole.len() - 25]).filter(|&length| length < whole.len())
        {
            fs::write(&path, &whole[..length]).unwrap();
            let [opened, parsed] = [File::open(&path), File::parse(&whole[..length])]
                .map(|result| result.expect_err("what is missing is needed").to_string());
            assert_eq!(opened, format!("{}: {parsed}", path.display()));
        }
    }
}

#[test]
fn endless_headers_are_not_read() {
    let path = scratch("endless.gguf");
    let mut header = b"GGUF\x03\0\0\0".to_vec();
    header.extend([0u64, 1, 1].map(u64::to_le_bytes).concat());
    // The key "a", an array (9) of bytes (0), 300 MiB of them.
    header.extend(b"a\x09\0\0\0\0\0\0\0");
    header.extend((300u64 << 20).to_le_bytes());
    fs::write(&path, header).unwrap();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(400 << 20).unwrap();
    let error = File::open(&path).unwrap_err();
    fs::remove_file(&path).unwrap();
    assert!(matches!(error.cause(), Cause::HeaderTooLong { limit: 0x1000_0000 }), "{error}");
}

#[test]
fn a_file_that_is_cut_short_while_it_is_open_is_an_error() {
    let path = with_two_tensors("cut.gguf", &[7; 1_000_000]);
    let file = File::open(&path).unwrap();
    file.check_unchanged().unwrap();
    let a = file.require("a").unwrap();
    for length in [900_000, 10, 0] {
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length).unwrap();
        let error = file.read_all(a).unwrap_err();
        assert!(
            matches!(error.cause(), Cause::CutShort { length: found, .. } if *found == length),
            "{error}"
        );
        assert!(error.to_string().starts_with(&format!("{}: tensor \"a\": ", path.display())), "{error}");
        assert!(matches!(file.check_unchanged().unwrap_err().cause(), Cause::Changed));
    }
}

#[test]
fn a_file_that_is_written_to_while_it_is_open_is_known() {
    let path = with_two_tensors("written.gguf", &[7; 1_000_000]);
    let file = File::open(&path).unwrap();
    let handle = fs::OpenOptions::new().write(true).open(&path).unwrap();
    handle.set_modified(fs::metadata(&path).unwrap().modified().unwrap() + Duration::from_millis(1)).unwrap();
    let error = file.check_unchanged().unwrap_err();
    assert!(matches!(error.cause(), Cause::Changed) && error.path() == Some(path.as_path()), "{error}");
}

#[test]
fn a_file_may_be_replaced_while_it_is_open() {
    let path = with_two_tensors("replaced.gguf", &[7; 1_000_000]);
    let file = File::open(&path).unwrap();
    let other = with_two_tensors("replacement.gguf", &[8; 1_000_000]);
    fs::rename(other, &path).unwrap();
    assert_eq!(file.read_all(file.require("a").unwrap()).unwrap(), [7; 1_000_000]);
    file.check_unchanged().unwrap();
}

/// A file with the tensor "a" of a million bytes and the tensor "b" of four.
fn with_two_tensors(name: &str, data: &[u8]) -> PathBuf {
    let path = scratch(name);
    let mut writer = Writer::new();
    writer.announce("a", DType::F32, &[250_000]).unwrap();
    writer.announce("b", DType::F32, &[1]).unwrap();
    let mut sink = writer.start(fs::File::create(&path).unwrap()).unwrap();
    sink.part(&data[..777]).unwrap();
    sink.part(&data[777..]).unwrap();
    sink.tensor("b", &[1, 2, 3, 4]).unwrap();
    sink.finish().unwrap();
    path
}

fn scratch(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("open");
    fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}
