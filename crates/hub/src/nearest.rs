//! Suggestions for misspelt names.

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
    let distance = strsim::levenshtein(wanted, name);
    let length = wanted.chars().count();
    let piece = length >= 3 && (name.contains(wanted) || (name.len() >= 3 && wanted.contains(name)));
    (distance <= (length / 3).max(1) || piece).then_some(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(given: &str) -> Vec<String> {
        let names = ["smollm2", "qwen2.5-coder:0.5b", "qwen2.5-coder:1.5b", "gemma3:270m"];
        nearest(given, names.map(str::to_owned))
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
