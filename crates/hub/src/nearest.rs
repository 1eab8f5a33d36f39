//! Typo help: which known names look like an unknown one.

/// The most names worth showing.
const SHOWN: usize = 3;

/// The candidates that look like `given`, best first: few edits away, or one a piece of the other.
pub(crate) fn nearest(given: &str, candidates: impl IntoIterator<Item = String>) -> Vec<String> {
    let wanted = given.to_lowercase();
    let mut scored: Vec<(usize, String)> = candidates
        .into_iter()
        .filter_map(|name| distance_if_near(&wanted, &name.to_lowercase()).map(|distance| (distance, name)))
        .collect();
    scored.sort();
    scored.dedup_by(|a, b| a.1 == b.1);
    scored.into_iter().take(SHOWN).map(|(_, name)| name).collect()
}

fn distance_if_near(wanted: &str, name: &str) -> Option<usize> {
    let distance = edits(wanted, name);
    let length = wanted.chars().count();
    let piece = length >= 3 && (name.contains(wanted) || (name.len() >= 3 && wanted.contains(name)));
    (distance <= (length / 3).max(1) || piece).then_some(distance)
}

/// Levenshtein's distance in characters, one row of the table at a time.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(given: &str) -> Vec<String> {
        let names = ["smollm2", "qwen2.5-coder:0.5b", "qwen2.5-coder:1.5b", "gemma3:270m"];
        nearest(given, names.map(str::to_owned))
    }

    #[test]
    fn distances() {
        for (a, b, want) in
            [("", "", 0), ("abc", "", 3), ("kitten", "sitting", 3), ("flaw", "lawn", 2), ("é", "e", 1)]
        {
            assert_eq!((edits(a, b), edits(b, a)), (want, want), "{a} {b}");
        }
    }

    #[test]
    fn typos_and_pieces() {
        assert_eq!(near("smolm2"), ["smollm2"]);
        assert_eq!(near("SmolLM2"), ["smollm2"]);
        assert_eq!(near("gemma3"), ["gemma3:270m"]);
        assert_eq!(near("qwen"), ["qwen2.5-coder:0.5b", "qwen2.5-coder:1.5b"]);
        assert_eq!(near("qwen2.5-coder:1.6b"), ["qwen2.5-coder:1.5b", "qwen2.5-coder:0.5b"]);
        assert!(near("llama").is_empty());
        assert!(near("").is_empty());
    }
}
