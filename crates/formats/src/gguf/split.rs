//! Models that are split into several files, `NAME-00001-of-00003.gguf` and so on.
//!
//! Each part is a whole GGUF file with some of the tensors, as `gguf-split` of llama.cpp writes
//! them: `split.no` is its number from 0, `split.count` the number of parts, `split.tensors.count`
//! the number of tensors in all of them. The first part has the model's metadata.

use std::path::{Path, PathBuf};

use super::error::{Cause, GgufError};
use super::file::Part;
use super::limits::ALIGNMENT_KEY;
use super::names::NameIndex;
use super::tensor::Tensor;

const ENDING: &str = ".gguf";
const NUMBER: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";

/// Opens the other parts of the model that `named`, opened at `path`, is a part of; all parts in
/// order.
pub(super) fn with_others(named: Part, path: &Path) -> Result<Vec<Part>, GgufError> {
    let Some((number, count)) = place(&named)? else { return Ok(vec![named]) };
    let name = Name::of(path, number, count)
        .ok_or_else(|| GgufError::new(Cause::PartName { number, count }).in_file(Some(path)))?;
    let mut named = Some(named);
    let mut parts = Vec::new();
    for wanted in 1..=count {
        let part = match named.take_if(|_| wanted == number) {
            Some(part) => part,
            None => open_part(&name.sibling(path, wanted, count), wanted, count)?,
        };
        parts.push(part);
    }
    check_agreement(&parts)?;
    Ok(parts)
}

/// Refuses a file in memory that is a part of several.
pub(super) fn refuse_part(part: &Part) -> Result<(), GgufError> {
    match place(part)? {
        None => Ok(()),
        Some((number, count)) => Err(GgufError::new(Cause::PartAlone { number, count })),
    }
}

/// The tensors of all parts, with their names.
pub(super) fn merge(parts: &mut [Part]) -> Result<(Vec<Tensor>, NameIndex), GgufError> {
    let tensors: Vec<Tensor> =
        parts.iter_mut().enumerate().flat_map(|(index, part)| part.take_tensors(index)).collect();
    let names = NameIndex::new(tensors.len(), |position| tensors[position].name().as_bytes());
    let names = names.map_err(|position| {
        let tensor: &Tensor = &tensors[position];
        GgufError::new(Cause::DuplicateTensor).tensor(tensor.name()).in_file(parts[tensor.part()].path())
    })?;
    Ok((tensors, names))
}

/// The number of a part, from 1, and the number of parts; `None` for a model in one file.
fn place(part: &Part) -> Result<Option<(u64, u64)>, GgufError> {
    let metadata = part.metadata();
    let count = metadata.u64(COUNT)?.unwrap_or(0);
    if count < 2 {
        return Ok(None);
    }
    let number = metadata.u64(NUMBER)?.unwrap_or(0).saturating_add(1);
    if number > count {
        return Err(GgufError::new(Cause::PartNumber { number, count }).key(NUMBER).in_file(part.path()));
    }
    Ok(Some((number, count)))
}

/// What the names of parts have in common.
struct Name {
    /// What stands in front of the numbers.
    stem: String,
    /// The ending after them, in letters of either case.
    ending: String,
}

impl Name {
    fn of(path: &Path, number: u64, count: u64) -> Option<Name> {
        let name = path.file_name()?.to_str()?;
        let (front, ending) = name.split_at_checked(name.len().checked_sub(ENDING.len())?)?;
        let stem = front.strip_suffix(&numbers(number, count))?;
        let is_model = ending.eq_ignore_ascii_case(ENDING);
        is_model.then(|| Name { stem: stem.to_owned(), ending: ending.to_owned() })
    }

    fn sibling(&self, path: &Path, number: u64, count: u64) -> PathBuf {
        path.with_file_name(format!("{}{}{}", self.stem, numbers(number, count), self.ending))
    }
}

fn numbers(number: u64, count: u64) -> String {
    format!("-{number:05}-of-{count:05}")
}

fn open_part(path: &Path, number: u64, count: u64) -> Result<Part, GgufError> {
    if !path.exists() {
        return Err(GgufError::new(Cause::MissingPart { number, count }).in_file(Some(path)));
    }
    let part = Part::open(path)?;
    match place(&part)? {
        Some(found) if found == (number, count) => Ok(part),
        found => Err(GgufError::new(Cause::WrongPart { wanted: number, found }).in_file(Some(path))),
    }
}

/// All parts state the same number of tensors, which is right, and no other metadata that
/// contradicts the first.
fn check_agreement(parts: &[Part]) -> Result<(), GgufError> {
    let first = parts[0].metadata();
    for part in &parts[1..] {
        let metadata = part.metadata();
        for (key, _) in metadata.iter() {
            let differs = first.contains(key) && first.stored(key) != metadata.stored(key);
            if differs && ![NUMBER, ALIGNMENT_KEY].contains(&key) {
                let cause = Cause::PartDiffers { first: file_name(&parts[0]) };
                return Err(GgufError::new(cause).key(key).in_file(part.path()));
            }
        }
    }
    let found = parts.iter().map(|part| part.n_tensors() as u64).sum();
    match first.u64(TENSORS)? {
        Some(stated) if stated != found => {
            Err(GgufError::new(Cause::SplitTensors { stated, found }).key(TENSORS).in_file(parts[0].path()))
        }
        _ => Ok(()),
    }
}

fn file_name(part: &Part) -> String {
    let name = part.path().and_then(Path::file_name).unwrap_or_default();
    name.to_string_lossy().into_owned()
}
