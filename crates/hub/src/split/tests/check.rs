//! What holds for any file names in a folder.

use std::collections::BTreeSet;

use super::groups;

/// Every `*.gguf` name is in one group; a group of several has only names that its stem and one
/// count spell.
pub(crate) fn check(files: &BTreeSet<String>) {
    let groups = groups(files.iter().cloned());
    let mut seen = BTreeSet::new();
    for group in &groups {
        assert!(group.files.iter().all(|file| seen.insert(file.clone())), "{group:?} shares a file");
        let (first, stem) = (group.files.first().expect("a group has files"), &group.stem);
        let ending = &first[first.len() - ".gguf".len()..];
        if *first == format!("{stem}{ending}") {
            assert_eq!(group.files.len(), 1, "{group:?} is whole");
            continue;
        }
        let count = first[..first.len() - ending.len()].rsplit_once('-').expect("a part has a count").1;
        let count: u32 = count.parse().expect("a count is a number");
        let spelled = |file: &str| {
            let number = file.strip_prefix(&format!("{stem}-"))?.split_once('-')?.0.parse::<u32>().ok()?;
            let number = (1..=count).contains(&number).then_some(number)?;
            (file == format!("{stem}-{number:05}-of-{count:05}{ending}")).then_some(number)
        };
        let numbers: Vec<_> = group.files.iter().map(|file| spelled(file)).collect();
        assert!(count > 1 && numbers.iter().all(Option::is_some), "{group:?} has a stranger");
        assert!(numbers.is_sorted(), "{group:?} is out of order");
    }
    let all: BTreeSet<String> =
        files.iter().filter(|file| file.to_ascii_lowercase().ends_with(".gguf")).cloned().collect();
    assert_eq!(seen, all);
}
