//! Finds all tokens that are prefixes of a text.

use super::vocabulary::Vocabulary;

/// Tokens in the order of their bytes.
#[derive(Debug)]
pub(super) struct Prefixes {
    sorted: Vec<u32>,
    /// Where the tokens of each first byte begin, and where the last ones end.
    starts: Vec<u32>,
}

impl Prefixes {
    /// The table of the tokens `ids`, leaving out empty ones; of several with
    /// one text the first stays.
    pub(super) fn new(vocabulary: &Vocabulary, ids: impl Iterator<Item = u32>) -> Self {
        let mut sorted: Vec<u32> = ids.filter(|&id| !vocabulary.bytes(id).is_empty()).collect();
        sorted.sort_by_key(|&id| (vocabulary.bytes(id), id));
        sorted.dedup_by(|later, first| vocabulary.bytes(*later) == vocabulary.bytes(*first));
        sorted.shrink_to_fit();
        let below =
            |byte: usize| sorted.partition_point(|&id| usize::from(vocabulary.bytes(id)[0]) < byte) as u32;
        let starts = (0..=256).map(below).collect();
        Self { sorted, starts }
    }

    /// Shows `found` every token that `text` begins with, and its length,
    /// shortest first.
    pub(super) fn of(&self, vocabulary: &Vocabulary, text: &[u8], mut found: impl FnMut(u32, usize)) {
        let Some(&first) = text.first() else { return };
        let [from, to] = [0, 1].map(|step| self.starts[usize::from(first) + step] as usize);
        let mut candidates = &self.sorted[from..to];
        for depth in 1..=text.len() {
            if let Some((&id, longer)) = candidates.split_first()
                && vocabulary.bytes(id).len() == depth
            {
                found(id, depth);
                candidates = longer;
            }
            let Some(&byte) = text.get(depth) else { return };
            let at_depth = |id: &u32| vocabulary.bytes(*id)[depth];
            let from = candidates.partition_point(|id| at_depth(id) < byte);
            let to = candidates.partition_point(|id| at_depth(id) <= byte);
            candidates = &candidates[from..to];
            if candidates.is_empty() {
                return;
            }
        }
    }

    /// The bytes held on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        (self.sorted.capacity() + self.starts.capacity()) * size_of::<u32>()
    }
}
