/// The candidate that needs the fewest edits to become `word`, if that is at most a third of the longer of the two.
pub(crate) fn nearest<'c>(word: &str, candidates: &[&'c str]) -> Option<&'c str> {
    let scored = candidates.iter().map(|candidate| (edits(word, candidate), *candidate));
    let (distance, candidate) = scored.min_by_key(|(distance, _)| *distance)?;
    let longer = word.chars().count().max(candidate.chars().count());
    (3 * distance <= longer).then_some(candidate)
}

/// Insertions, deletions and replacements from one word to the other (Levenshtein).
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = index + 1;
        for (column, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
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
        assert_eq!(edits("kitten", "sitting"), 3);
    }
}
