//! The cache folder of pulled models.
//!
//! Complete models are `*.gguf` files in the folder; a split model has several. Downloads in
//! progress are under `.partial/`, with one folder and one lock for each file.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::catalog;
use crate::disk;
use crate::error::HubError;
use crate::lock::FileLock;
use crate::nearest::nearest;
use crate::split::{self, Group};

/// The variable that places the cache folder.
pub const ENV_MODELS: &str = "MINFER_MODELS";

/// Where models are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheDir {
    path: PathBuf,
}

impl CacheDir {
    /// The user's folder: `$MINFER_MODELS`, else `$XDG_CACHE_HOME/minfer/models`, else
    /// `~/.cache/minfer/models`.
    ///
    /// `env` looks a variable up. An empty variable counts as unset, and so does a relative
    /// `XDG_CACHE_HOME` (as its specification asks). The folder need not exist.
    ///
    /// # Errors
    /// [`HubError::NoCacheFolder`] where no variable places it.
    pub fn resolve(env: impl Fn(&str) -> Option<OsString>) -> Result<Self, HubError> {
        let var = |name: &str| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(path) = var(ENV_MODELS) {
            return Ok(Self { path });
        }
        let caches = var("XDG_CACHE_HOME")
            .filter(|path| path.is_absolute())
            .or_else(|| var("HOME").or_else(|| var("USERPROFILE")).map(|home| home.join(".cache")));
        caches
            .map(|caches| Self { path: caches.join("minfer").join("models") })
            .ok_or(HubError::NoCacheFolder)
    }

    /// A given folder.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where a model's file is once it is pulled.
    pub(crate) fn file_path(&self, file: &str) -> PathBuf {
        self.path.join(file)
    }

    /// Holds everything that is not a whole model.
    pub(crate) fn partial_root(&self) -> PathBuf {
        self.path.join(".partial")
    }

    /// The folder of a download in progress.
    pub(crate) fn partial_path(&self, file: &str) -> PathBuf {
        self.partial_root().join(file)
    }

    /// The lock of a file.
    pub(crate) fn lock_path(&self, file: &str) -> PathBuf {
        self.partial_root().join(format!("{file}.lock"))
    }

    /// The cached file that `name` stands for: a catalogue name, a file name, a file name without
    /// its ending, or the name of a split model, which stands for its first part. Endings are of
    /// either case.
    pub(crate) fn lookup(&self, name: &str) -> Option<String> {
        let files =
            catalog::find(name).map(|entry| entry.file.to_owned()).into_iter().chain(file_names(name));
        files.into_iter().find(|file| self.file_path(file).is_file()).or_else(|| self.listed(name))
    }

    /// The file of a model that is listed under a name, or whose file has the name but for the case
    /// of its ending.
    fn listed(&self, name: &str) -> Option<String> {
        let models = list(self).ok()?;
        let stem = split::parted(name).map_or(name, |(stem, _)| stem);
        let is_of = |file: &String| split::parted(file).is_some_and(|(other, _)| other == stem);
        let listed = models.iter().find(|model| model.name == name).map(|model| &model.file);
        listed.or_else(|| models.iter().flat_map(|model| &model.files).find(|file| is_of(file))).cloned()
    }

    /// Every file of the model that `file`, a file of this folder, belongs to.
    fn siblings(&self, file: &str) -> Result<Vec<String>, HubError> {
        let mut groups = split::groups(entries(&self.path)?).into_iter();
        let group = groups.find(|group| group.files.iter().any(|other| other == file));
        Ok(group.map_or_else(|| vec![file.to_owned()], |group| group.files))
    }
}

/// A whole model in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedModel {
    /// The shortest name that finds it: the catalogue's, else the file name without its ending, and
    /// without the numbers of a split model.
    pub name: String,
    /// The file's name; of a split model that of the first part.
    pub file: String,
    /// The path of that file.
    pub path: PathBuf,
    /// Names of all its files, in order.
    pub files: Vec<String>,
    /// The size of all its files.
    pub bytes: u64,
    /// The catalogue name, where the catalogue has this file.
    pub catalog: Option<&'static str>,
}

/// A pull that was interrupted (or is running) and can be resumed by pulling again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialModel {
    /// The file's name once it is whole.
    pub file: String,
    /// The bytes it takes on disk.
    pub bytes: u64,
    /// Whether a process is pulling it now.
    pub running: bool,
}

/// The whole models of the cache, by name. A folder that does not exist has none.
///
/// # Errors
/// [`HubError::Io`] where the folder cannot be read.
pub fn list(cache: &CacheDir) -> Result<Vec<CachedModel>, HubError> {
    let is_file = |file: &String| cache.file_path(file).is_file();
    let groups = split::groups(entries(cache.path())?.into_iter().filter(is_file));
    let mut models: Vec<CachedModel> =
        groups.iter().filter_map(|group| cached_model(cache, group, &groups)).collect();
    models.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(models)
}

/// A model of the cache, named among all of them: one whose short name another has too goes by its
/// first file's, and where only the endings of files differ, those that are not in small letters
/// keep them.
fn cached_model(cache: &CacheDir, group: &Group, all: &[Group]) -> Option<CachedModel> {
    let file = group.files.first()?.clone();
    let catalog = catalog::find_by_file(&file).map(|entry| entry.name);
    let stem_of = |file: &String| split::parted(file).map(|(stem, _)| stem.to_owned());
    let unique = all.iter().filter(|other| other.stem == group.stem).count() == 1;
    let stem = if unique { group.stem.clone() } else { stem_of(&file)? };
    let other_has_it =
        |other: &Group| other != group && other.files.first().and_then(stem_of).as_ref() == Some(&stem);
    let name =
        if !unique && !file.ends_with(".gguf") && all.iter().any(other_has_it) { file.clone() } else { stem };
    let size = |file: &String| fs::metadata(cache.file_path(file)).map_or(0, |metadata| metadata.len());
    Some(CachedModel {
        name: catalog.map_or(name, str::to_owned),
        path: cache.file_path(&file),
        bytes: group.files.iter().map(size).sum(),
        files: group.files.clone(),
        file,
        catalog,
    })
}

/// The unfinished pulls of the cache, by file name.
///
/// # Errors
/// [`HubError::Io`] where the folder cannot be read.
pub fn list_partials(cache: &CacheDir) -> Result<Vec<PartialModel>, HubError> {
    let mut partials: Vec<PartialModel> = entries(&cache.partial_root())?
        .into_iter()
        .filter(|file| cache.partial_path(file).is_dir())
        .map(|file| PartialModel {
            bytes: disk::folder_bytes(&cache.partial_path(&file)),
            running: FileLock::is_held(cache, &file),
            file,
        })
        .collect();
    partials.sort_by(|a, b| a.file.cmp(&b.file));
    Ok(partials)
}

/// The result of removing a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The name under which the model was listed; of a pull that was not finished the name that was
    /// given.
    pub name: String,
    /// Names of the files that went, in order: of a split model all of its parts.
    pub files: Vec<String>,
    /// The bytes set free.
    pub bytes: u64,
}

/// Removes a model, and what an interrupted pull of it left.
///
/// `name` is a catalogue name, a file name with or without its ending, or the name of a split
/// model, never a path. Of a split model all parts go, also where `name` is one part's.
///
/// # Errors
/// [`HubError::NotCached`] where neither is there, [`HubError::Busy`] while it is being pulled,
/// [`HubError::Io`].
pub fn remove(name: &str, cache: &CacheDir) -> Result<Removed, HubError> {
    let Some(file) = removable(name, cache) else {
        let known = list(cache)?.into_iter().map(|model| model.name);
        return Err(HubError::NotCached {
            name: name.to_owned(),
            near: nearest(name, known),
            cache: cache.path().into(),
        });
    };
    let files = cache.siblings(&file)?;
    let listed = list(cache)?.into_iter().find(|model| model.files.contains(&file));
    let _locks =
        files.iter().map(|file| FileLock::try_take(cache, file)).collect::<Result<Vec<_>, HubError>>()?;
    let bytes =
        files.iter().try_fold(0, |freed, file| Ok::<_, HubError>(freed + remove_file(file, cache)?))?;
    Ok(Removed { name: listed.map_or_else(|| name.to_owned(), |model| model.name), files, bytes })
}

/// Removes a file and what an interrupted pull of it left; the bytes set free.
fn remove_file(file: &str, cache: &CacheDir) -> Result<u64, HubError> {
    let path = cache.file_path(file);
    let mut freed = disk::folder_bytes(&cache.partial_path(file));
    disk::remove_folder(&cache.partial_path(file))?;
    if let Ok(metadata) = fs::symlink_metadata(&path) {
        fs::remove_file(&path).map_err(HubError::io(&path))?;
        freed += metadata.len();
    }
    Ok(freed)
}

fn removable(name: &str, cache: &CacheDir) -> Option<String> {
    let partial = |file: &String| cache.partial_path(file).is_dir();
    let unfinished = || {
        catalog::find(name)
            .map(|entry| entry.file.to_owned())
            .into_iter()
            .chain(file_names(name))
            .find(partial)
    };
    cache.lookup(name).or_else(unfinished)
}

/// The file names that a name without folders can stand for.
fn file_names(name: &str) -> Vec<String> {
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\\']) {
        return Vec::new();
    }
    if split::parted(name).is_some() { vec![name.to_owned()] } else { vec![format!("{name}.gguf")] }
}

/// The names in a folder; none where it does not exist.
fn entries(folder: &Path) -> Result<Vec<String>, HubError> {
    let names =
        |entries: fs::ReadDir| entries.map(|entry| entry.map(|e| e.file_name().into_string().ok())).collect();
    match fs::read_dir(folder).and_then(names) {
        Ok(names) => Ok(Vec::into_iter(names).flatten().collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(HubError::io(folder)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(vars: &[(&str, &str)]) -> Option<PathBuf> {
        let env =
            |name: &str| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
        CacheDir::resolve(env).ok().map(|cache| cache.path)
    }

    #[test]
    fn variables_in_order() {
        let all = [("MINFER_MODELS", "/m"), ("XDG_CACHE_HOME", "/x"), ("HOME", "/h")];
        assert_eq!(placed(&all), Some("/m".into()));
        assert_eq!(placed(&all[1..]), Some("/x/minfer/models".into()));
        assert_eq!(placed(&all[2..]), Some("/h/.cache/minfer/models".into()));
        assert_eq!(
            placed(&[("MINFER_MODELS", ""), ("XDG_CACHE_HOME", "rel"), ("HOME", "/h")]),
            Some("/h/.cache/minfer/models".into())
        );
        assert_eq!(placed(&[]), None);
    }

    fn filled() -> (tempfile::TempDir, CacheDir) {
        let folder = tempfile::tempdir().unwrap();
        for (file, bytes) in [("gemma3-270m-q4_k_m.gguf", 3), ("mine.gguf", 2), ("notes.txt", 9)] {
            fs::write(folder.path().join(file), vec![0; bytes]).unwrap();
        }
        fs::create_dir(folder.path().join("folder.gguf")).unwrap();
        fs::create_dir_all(folder.path().join(".partial/late.gguf")).unwrap();
        fs::write(folder.path().join(".partial/late.gguf/data"), [0; 5]).unwrap();
        fs::write(folder.path().join(".partial/late.gguf.lock"), []).unwrap();
        let cache = CacheDir::at(folder.path());
        (folder, cache)
    }

    #[test]
    fn listed_are_whole_models_only() {
        let (_folder, cache) = filled();
        let seen: Vec<_> =
            list(&cache).unwrap().into_iter().map(|m| (m.name, m.file, m.bytes, m.catalog)).collect();
        assert_eq!(
            seen,
            [
                ("gemma3:270m".to_owned(), "gemma3-270m-q4_k_m.gguf".to_owned(), 3, Some("gemma3:270m")),
                ("mine".to_owned(), "mine.gguf".to_owned(), 2, None),
            ]
        );
        let late = |running| [PartialModel { file: "late.gguf".into(), bytes: 5, running }];
        assert_eq!(list_partials(&cache).unwrap(), late(false));
        let pulling = FileLock::try_take(&cache, "late.gguf").unwrap();
        assert_eq!(list_partials(&cache).unwrap(), late(true));
        drop(pulling);
        let nowhere = CacheDir::at(cache.path().join("none"));
        assert!(list(&nowhere).unwrap().is_empty() && list_partials(&nowhere).unwrap().is_empty());
    }

    #[test]
    fn removed_by_any_of_its_names() {
        let (folder, cache) = filled();
        assert_eq!(remove("gemma3:270m", &cache).unwrap().bytes, 3);
        assert_eq!(remove("mine", &cache).unwrap().bytes, 2);
        assert_eq!(remove("late.gguf", &cache).unwrap().bytes, 5);
        assert!(list(&cache).unwrap().is_empty() && list_partials(&cache).unwrap().is_empty());
        assert!(folder.path().join("notes.txt").exists());
    }

    /// A cache with a split model of three parts, and files whose names are near its own.
    fn split() -> (tempfile::TempDir, CacheDir) {
        let folder = tempfile::tempdir().unwrap();
        for (file, bytes) in [
            ("big-00003-of-00003.gguf", 3),
            ("big-00001-of-00003.gguf", 1),
            ("big-00002-of-00003.gguf", 2),
            ("bigger.gguf", 9),
        ] {
            fs::write(folder.path().join(file), vec![0; bytes]).unwrap();
        }
        let cache = CacheDir::at(folder.path());
        (folder, cache)
    }

    #[test]
    fn a_split_model_is_one() {
        let (folder, cache) = split();
        let names = |cache: &CacheDir| {
            list(cache).unwrap().into_iter().map(|m| (m.name, m.files.len(), m.bytes)).collect::<Vec<_>>()
        };
        assert_eq!(names(&cache), [("big".to_owned(), 3, 6), ("bigger".to_owned(), 1, 9)]);
        assert_eq!(cache.lookup("big").unwrap(), "big-00001-of-00003.gguf");
        assert_eq!(cache.lookup("big-00002-of-00003").unwrap(), "big-00002-of-00003.gguf");
        // A file of the same name takes it; the parts then go by the first one's.
        fs::write(folder.path().join("big.gguf"), [0; 4]).unwrap();
        let long = "big-00001-of-00003";
        let all = [("big".to_owned(), 1, 4), (long.to_owned(), 3, 6), ("bigger".to_owned(), 1, 9)];
        assert_eq!(names(&cache), all);
        assert_eq!(
            (cache.lookup("big").unwrap(), remove(long, &cache).unwrap().bytes),
            ("big.gguf".into(), 6)
        );
        assert_eq!(names(&cache), [("big".to_owned(), 1, 4), ("bigger".to_owned(), 1, 9)]);
    }

    #[test]
    fn endings_are_of_either_case() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CacheDir::at(folder.path());
        let write = |file: &str| fs::write(folder.path().join(file), [0; 2]).unwrap();
        let names =
            || list(&cache).unwrap().into_iter().map(|model| (model.name, model.file)).collect::<Vec<_>>();
        write("Mine.GGUF");
        assert_eq!(names(), [("Mine".to_owned(), "Mine.GGUF".to_owned())]);
        for name in ["Mine", "Mine.GGUF", "Mine.gguf"] {
            assert_eq!(cache.lookup(name).as_deref(), Some("Mine.GGUF"), "{name}");
        }
        assert_eq!(cache.lookup("mine"), None);
        // Another file that differs in nothing else.
        write("Mine.gguf");
        if names().len() == 2 {
            let pair = |name: &str, file: &str| (name.to_owned(), file.to_owned());
            assert_eq!(names(), [pair("Mine", "Mine.gguf"), pair("Mine.GGUF", "Mine.GGUF")]);
            assert_eq!(cache.lookup("Mine").as_deref(), Some("Mine.gguf"));
            assert_eq!(remove("Mine.GGUF", &cache).unwrap().files, ["Mine.GGUF"]);
            assert_eq!(names(), [pair("Mine", "Mine.gguf")]);
        }
        for part in 1..=2 {
            write(&format!("big-0000{part}-of-00002.GGUF"));
        }
        assert_eq!(cache.lookup("big").as_deref(), Some("big-00001-of-00002.GGUF"));
        assert_eq!(cache.lookup("big.gguf"), None, "a file's name is not that of all parts");
        assert_eq!(remove("big-00002-of-00002", &cache).unwrap().files.len(), 2);
    }

    #[test]
    fn a_split_model_is_removed_whole_or_not_at_all() {
        for name in ["big", "big-00002-of-00003", "big-00003-of-00003.gguf"] {
            let (_folder, cache) = split();
            let pull = FileLock::try_take(&cache, "big-00002-of-00003.gguf").unwrap();
            assert!(matches!(remove(name, &cache), Err(HubError::Busy { .. })));
            assert_eq!(list(&cache).unwrap().len(), 2);
            drop(pull);
            let removed = remove(name, &cache).unwrap();
            assert_eq!((removed.files.len(), removed.bytes), (3, 6), "{name}: {removed:?}");
            assert_eq!(removed.name, "big");
            assert_eq!(list(&cache).unwrap().len(), 1);
        }
    }

    #[test]
    fn paths_are_never_removed() {
        let (folder, cache) = filled();
        let inner = CacheDir::at(folder.path().join("inner"));
        fs::create_dir(inner.path()).unwrap();
        for name in ["../mine", "../mine.gguf", "/etc/passwd", "", ".", "..", ".partial"] {
            assert!(matches!(remove(name, &inner), Err(HubError::NotCached { .. })), "{name}");
        }
        let error = remove("mime", &cache).unwrap_err().to_string();
        assert!(error.contains("did you mean `mine`?"), "{error}");
    }

    #[test]
    fn a_file_being_pulled_stays() {
        let (_folder, cache) = filled();
        let _pull = FileLock::try_take(&cache, "mine.gguf").unwrap();
        assert!(matches!(remove("mine", &cache), Err(HubError::Busy { .. })));
        assert!(cache.file_path("mine.gguf").exists());
    }
}
