//! The nearest known name, for "did you mean".

/// The candidate that needs the fewest edits to become `word`, if that is at most a third of the
/// longer of the two.
pub(crate) fn nearest<'c>(word: &str, candidates: &[&'c str]) -> Option<&'c str> {
    let scored = candidates.iter().map(|candidate| (strsim::levenshtein(word, candidate), *candidate));
    let (distance, candidate) = scored.min_by_key(|(distance, _)| *distance)?;
    let longer = word.chars().count().max(candidate.chars().count());
    (3 * distance <= longer).then_some(candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_near_words_are_offered() {
        let known = ["llama", "qwen2"];
        assert_eq!(nearest("lama", &known), Some("llama"));
        assert_eq!(nearest("qwen3", &known), Some("qwen2"));
        assert_eq!(nearest("gpt-neox", &known), None);
        assert_eq!(nearest("qwan", &known), None, "two edits of five letters are too many");
        assert_eq!(nearest("anything", &[]), None);
    }
}
