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
        // A longer number is a greater one.
        files.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
        files
    };
    groups.into_iter().map(|((stem, _), files)| Group { stem, files: sorted(files) }).collect()
}

/// A file name without its ending.
pub(crate) fn stem(file: &str) -> &str {
    file.strip_suffix(".gguf").unwrap_or(file)
}

/// What the parts of a model have in common: the name in front of the numbers, and how many parts there are; `None` where a
/// file is no part.
fn key(file: &str) -> (String, Option<u32>) {
    let stem = stem(file);
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
    use std::collections::BTreeSet;

    mod check;

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

    #[test]
    fn any_names_are_put_together() {
        const PIECES: [&str; 14] = [
            "a",
            "b",
            "-",
            "-of-",
            ".gguf",
            ".gguf",
            "-00001-of-00002",
            "-00002-of-00002",
            "-00010-of-00012",
            "00001",
            "123456",
            "-100000-of-123456",
            "-99999-of-123456",
            "é",
        ];
        let mut state = 1_u64;
        let mut below = |bound: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % bound
        };
        let mut name =
            || (0..1 + below(5)).map(|_| PIECES[below(PIECES.len())]).collect::<String>() + ".gguf";
        for _ in 0..3000 {
            check::check(&(0..12).map(|_| name()).collect::<BTreeSet<_>>());
        }
    }
}
