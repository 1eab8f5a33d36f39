//! Models that are spread over several files of the cache: `NAME-00001-of-00003.gguf` and so on.

use std::collections::BTreeMap;

/// The files of one model, in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// The file name without `.gguf`, and for a split model without the numbers too.
    pub(crate) stem: String,
    /// The files that are there; more than one only of a split model.
    pub(crate) files: Vec<String>,
}

/// Puts `*.gguf` files together that are parts of the same model; other files are alone.
pub(crate) fn groups(files: impl IntoIterator<Item = String>) -> Vec<Group> {
    let mut groups: BTreeMap<(String, Option<u32>), Vec<String>> = BTreeMap::new();
    for file in files.into_iter().filter(|file| file.ends_with(".gguf")) {
        groups.entry(key(&file)).or_default().push(file);
    }
    let sorted = |mut files: Vec<String>| {
        files.sort();
        files
    };
    groups.into_iter().map(|((stem, _), files)| Group { stem, files: sorted(files) }).collect()
}

/// What the parts of a model have in common: the name in front of the numbers, and how many parts there are; `None` where a
/// file is no part.
fn key(file: &str) -> (String, Option<u32>) {
    let stem = file.trim_end_matches(".gguf");
    let part = || {
        let (front, count) = stem.rsplit_once("-of-")?;
        let (name, number) = front.rsplit_once('-')?;
        let (number, count) = (five_digits(number)?, five_digits(count)?);
        (!name.is_empty() && count > 1 && (1..=count).contains(&number))
            .then(|| (name.to_owned(), Some(count)))
    };
    part().unwrap_or_else(|| (stem.to_owned(), None))
}

/// A number as parts have it: with five digits, or more where it needs them.
fn five_digits(text: &str) -> Option<u32> {
    let padded = text.len() == 5 || text.len() > 5 && !text.starts_with('0');
    (padded && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(files: &[&str]) -> Vec<(String, usize)> {
        let groups = groups(files.iter().map(|file| (*file).to_owned()));
        groups.into_iter().map(|group| (group.stem, group.files.len())).collect()
    }

    #[test]
    fn parts_of_one_model_are_together() {
        let files =
            ["b-00002-of-00003.gguf", "a.gguf", "b-00001-of-00003.gguf", "b-00003-of-00003.gguf", "notes"];
        assert_eq!(seen(&files), [("a".to_owned(), 1), ("b".to_owned(), 3)]);
        let group = groups(files.map(str::to_owned)).pop().unwrap();
        assert_eq!(group.files, ["b-00001-of-00003.gguf", "b-00002-of-00003.gguf", "b-00003-of-00003.gguf"]);
        let two = ["b-00001-of-00002.gguf", "b-00001-of-00003.gguf"];
        assert_eq!(seen(&two), [("b".to_owned(), 1), ("b".to_owned(), 1)]);
    }

    #[test]
    fn names_that_only_look_like_parts_are_whole() {
        for file in [
            "b-1-of-3.gguf",
            "b-00000-of-00003.gguf",
            "b-00004-of-00003.gguf",
            "b-00001-of-00001.gguf",
            "-00001-of-00003.gguf",
            "b-0000x-of-00003.gguf",
            "b-000001-of-00003.gguf",
            "b-00001-of-+0003.gguf",
        ] {
            assert_eq!(seen(&[file]), [(file.trim_end_matches(".gguf").to_owned(), 1)], "{file}");
        }
    }
}
