//! Models that are spread over several files of the cache: `NAME-00001-of-00003.gguf` and so on.

use std::collections::BTreeMap;

/// How names of model files end, in letters of either case.
const ENDING: &str = ".gguf";

/// The files of one model, in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// The file name without its ending, and for a split model without the numbers too.
    pub(crate) stem: String,
    /// The files that are there; more than one only of a split model.
    pub(crate) files: Vec<String>,
}

/// Puts `*.gguf` files together that are parts of the same model; other files are alone.
pub(crate) fn groups(files: impl IntoIterator<Item = String>) -> Vec<Group> {
    let mut groups: BTreeMap<Key, Vec<String>> = BTreeMap::new();
    for file in files {
        if let Some(key) = key(&file) {
            groups.entry(key).or_default().push(file);
        }
    }
    let sorted = |mut files: Vec<String>| {
        // A longer number is a greater one.
        files.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
        files
    };
    groups.into_iter().map(|(key, files)| Group { stem: key.stem, files: sorted(files) }).collect()
}

/// A file name without its ending, and the ending; `None` where it is not that of a model.
pub(crate) fn parted(file: &str) -> Option<(&str, &str)> {
    let (stem, ending) = file.split_at_checked(file.len().checked_sub(ENDING.len())?)?;
    ending.eq_ignore_ascii_case(ENDING).then_some((stem, ending))
}

/// What the parts of a model have in common.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    /// The name in front of the numbers.
    stem: String,
    /// How many parts there are; `None` where a file is no part.
    count: Option<u32>,
    ending: String,
}

/// What a model's file has in common with its other parts.
fn key(file: &str) -> Option<Key> {
    let (stem, ending) = parted(file)?;
    let part = || {
        let (front, count) = stem.rsplit_once("-of-")?;
        let (name, number) = front.rsplit_once('-')?;
        let (number, count) = (five_digits(number)?, five_digits(count)?);
        (!name.is_empty() && count > 1 && (1..=count).contains(&number)).then_some((name, Some(count)))
    };
    let (stem, count) = part().unwrap_or((stem, None));
    Some(Key { stem: stem.to_owned(), count, ending: ending.to_owned() })
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
    fn endings_are_of_either_case() {
        let files = ["a.GGUF", "a.gguf", "b-00001-of-00002.GGUF", "b-00002-of-00002.GGUF", "c.Gguf", "gguf"];
        let one = |stem: &str| (stem.to_owned(), 1);
        assert_eq!(seen(&files), [one("a"), one("a"), ("b".to_owned(), 2), one("c")]);
        assert_eq!(seen(&["b-00001-of-00002.GGUF", "b-00002-of-00002.gguf"]), [one("b"), one("b")]);
        assert_eq!((parted("x.gGuF"), parted("x.ggu"), parted("é")), (Some(("x", ".gGuF")), None, None));
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
            ".GGUF",
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
        let mut name = || {
            (0..1 + below(5)).map(|_| PIECES[below(PIECES.len())]).collect::<String>()
                + [".gguf", ".GGUF"][below(2)]
        };
        for _ in 0..3000 {
            check::check(&(0..12).map(|_| name()).collect::<BTreeSet<_>>());
        }
    }
}
