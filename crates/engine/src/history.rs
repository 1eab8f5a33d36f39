//! The tokens of a conversation, and which of them context shifts have removed from the cache.

use std::borrow::Cow;
use std::ops::Range;

/// Every token of a sequence, including those whose rows were removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct History {
    /// In order.
    pub(crate) tokens: Vec<u32>,
    /// Indices of `tokens` without rows, ascending; neighbours are joined.
    removed: Vec<Range<u32>>,
    /// Total length of the `removed` ranges.
    removed_tokens: u32,
}

/// The tokens that are not in the `removed` ranges, which ascend.
pub(crate) fn tokens_left(tokens: &[u32], removed: &[Range<u32>]) -> Vec<u32> {
    let mut left = Vec::with_capacity(tokens.len());
    let mut next = 0;
    for range in removed {
        left.extend_from_slice(&tokens[next..range.start as usize]);
        next = range.end as usize;
    }
    left.extend_from_slice(&tokens[next..]);
    left
}

fn count(ranges: &[Range<u32>]) -> u32 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

impl History {
    /// Tokens of which nothing was removed.
    pub(crate) fn new(tokens: Vec<u32>) -> History {
        History { tokens, removed: Vec::new(), removed_tokens: 0 }
    }

    /// As a file keeps it.
    pub(crate) fn from_parts(tokens: Vec<u32>, removed: Vec<Range<u32>>) -> History {
        let mut joined: Vec<Range<u32>> = Vec::new();
        for range in removed {
            match joined.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => joined.push(range),
            }
        }
        History { tokens, removed_tokens: count(&joined), removed: joined }
    }

    /// Indices of tokens without rows, ascending.
    pub(crate) fn removed(&self) -> &[Range<u32>] {
        &self.removed
    }

    /// Tokens whose rows were removed.
    pub(crate) fn removed_tokens(&self) -> u32 {
        self.removed_tokens
    }

    /// Number of removed tokens from index `from` on.
    pub(crate) fn removed_from(&self, from: usize) -> u32 {
        let first = self.removed.partition_point(|range| (range.end as usize) <= from);
        self.removed[first..].iter().map(|range| range.end - range.start.max(from as u32)).sum()
    }

    /// The first index, from `from` on, of a token that was not removed.
    pub(crate) fn passing_removed(&self, from: usize) -> usize {
        let next = self.removed.partition_point(|range| (range.end as usize) <= from);
        match self.removed.get(next) {
            Some(range) if range.start as usize <= from => range.end as usize,
            _ => from,
        }
    }

    /// Number of tokens from index `from` to the next removed one.
    pub(crate) fn until_removed(&self, from: usize) -> usize {
        let next = self.removed.partition_point(|range| (range.start as usize) < from);
        self.removed.get(next).map_or(self.tokens.len(), |range| range.start as usize) - from
    }

    /// The tokens that were not removed.
    pub(crate) fn left(&self) -> Cow<'_, [u32]> {
        match self.removed.is_empty() {
            true => Cow::Borrowed(&self.tokens),
            false => Cow::Owned(tokens_left(&self.tokens, &self.removed)),
        }
    }

    /// The index of the token whose row is at `position`, or of the next token to come.
    pub(crate) fn index_of(&self, position: u32) -> u32 {
        let mut index = position;
        for range in &self.removed {
            if index < range.start {
                break;
            }
            index += range.end - range.start;
        }
        index
    }

    /// The rows at `positions` were removed from the cache.
    pub(crate) fn remove(&mut self, positions: Range<u32>) {
        let Some(last) = positions.end.checked_sub(1).filter(|&last| last >= positions.start) else { return };
        let mut added = self.index_of(positions.start)..self.index_of(last) + 1;
        // Ranges that overlap or touch the new one are merged into it.
        self.removed.retain(|range| {
            let apart = range.end < added.start || range.start > added.end;
            if !apart {
                added = added.start.min(range.start)..added.end.max(range.end);
            }
            apart
        });
        let at = self.removed.partition_point(|range| range.start < added.start);
        self.removed.insert(at, added);
        self.removed_tokens = count(&self.removed);
    }

    /// Takes over the removed ranges of a conversation that these tokens continue.
    pub(crate) fn adopt(&mut self, other: &History) {
        self.removed.clone_from(&other.removed);
        self.removed_tokens = other.removed_tokens;
    }

    /// How many tokens of `prompt` the first `fed` tokens stand for, at most all but the last: as
    /// many as are equal. None where they part before the end of what was removed, because rows
    /// know what came before them.
    pub(crate) fn shared_with(&self, prompt: &[u32], fed: usize) -> u32 {
        let most = fed.min(prompt.len().saturating_sub(1));
        let equal = self.tokens.iter().zip(prompt).take(most).take_while(|(own, other)| own == other).count();
        let forgotten = self.removed.last().map_or(0, |range| range.end as usize);
        if equal >= forgotten { equal as u32 } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rows_stand_for_an_equal_beginning_only() {
        let mut history = History::new((0..20).collect());
        assert_eq!(history.shared_with(&[0, 1, 2, 9], 20), 3);
        assert_eq!(history.shared_with(&[0, 1, 2], 20), 2, "the last token is always fed");
        assert_eq!(history.shared_with(&Vec::from_iter(0..30), 12), 12);
        assert_eq!(history.shared_with(&[], 20), 0);
        history.remove(4..8);
        assert_eq!(history.shared_with(&Vec::from_iter(0..30), 20), 20);
        assert_eq!(history.shared_with(&[0, 1, 2, 3, 4, 5, 6, 7, 9], 20), 8);
        assert_eq!(history.shared_with(&[0, 1, 2, 3, 4, 5, 6, 9], 20), 0);
    }

    proptest! {
        /// Against a list of the indices whose rows are left.
        #[test]
        fn removals_are_those_of_a_plain_list(cuts in prop::collection::vec((0..50u32, 0..20u32), 0..12)) {
            let mut history = History::new((0..60).collect());
            let mut left = Vec::from_iter(0..60u32);
            for (start, count) in cuts {
                let start = start.min(left.len() as u32);
                let end = (start + count).min(left.len() as u32);
                left.drain(start as usize..end as usize);
                history.remove(start..end);
                let gone = |index: &u32| history.removed().iter().any(|range| range.contains(index));
                let kept: Vec<u32> = (0..60).filter(|index| !gone(index)).collect();
                prop_assert_eq!(&kept, &left);
                prop_assert_eq!(history.removed_tokens() as usize, 60 - left.len());
                prop_assert_eq!(&history.left()[..], &left[..], "tokens are their own indices");
                for (position, &index) in left.iter().enumerate() {
                    prop_assert_eq!(history.index_of(position as u32), index);
                }
                for from in 0..60 {
                    let next = left.iter().find(|&&index| index >= from).copied().unwrap_or(60);
                    prop_assert_eq!(history.passing_removed(from as usize), next as usize);
                    let gone = (from..60).filter(|index| !left.contains(index)).count();
                    prop_assert_eq!(history.removed_from(from as usize) as usize, gone);
                    if left.contains(&from) {
                        let run = (from..60).take_while(|index| left.contains(index)).count();
                        prop_assert_eq!(history.until_removed(from as usize), run);
                    }
                }
                let ordered = history.removed().windows(2).all(|pair| pair[0].end < pair[1].start);
                prop_assert!(ordered, "{:?}", history.removed());
            }
        }
    }
}
