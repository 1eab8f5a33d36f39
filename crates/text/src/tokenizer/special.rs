//! Splits text at special and user-defined tokens.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// A token that is matched as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Special {
    /// The exact text, never empty.
    pub(crate) text: Box<str>,
    /// The id it stands for.
    pub(crate) id: u32,
    /// Whether it is matched only when specials are parsed.
    pub(crate) control: bool,
    /// Whether the white space before it, and after it, counts as part of it.
    pub(crate) strips: [bool; 2],
}

/// A part of a text after the special tokens are taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Segment<'t> {
    /// Plain text, never empty.
    Text(&'t str),
    /// A special token.
    Token(u32),
}

/// All tokens that are matched as a whole, in the order of their bytes.
#[derive(Debug)]
pub(crate) struct Specials {
    sorted: Vec<Special>,
    /// The bytes that some token begins with.
    first_bytes: Box<[bool; 256]>,
}

/// A place where a token is spelled; the order is that of matching: longer ones first, then from
/// left to right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Match {
    length: u32,
    start: Reverse<usize>,
    /// The token's place among the sorted ones.
    index: u32,
}

impl Match {
    fn start(self) -> usize {
        self.start.0
    }

    fn end(self) -> usize {
        self.start.0 + self.length as usize
    }
}

impl Specials {
    /// Sorts `specials`; of several with one text the lowest id stays.
    pub(super) fn new(mut specials: Vec<Special>) -> Self {
        specials.retain(|special| !special.text.is_empty());
        specials.sort_by(|a, b| a.text.cmp(&b.text).then(a.id.cmp(&b.id)));
        specials.dedup_by(|later, first| later.text == first.text);
        specials.shrink_to_fit();
        let first_bytes = Box::new(first_bytes(specials.iter()));
        Self { sorted: specials, first_bytes }
    }

    /// All specials, in the order of their bytes.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Special> {
        self.sorted.iter()
    }

    /// The token with exactly the text `text`.
    pub(super) fn id(&self, text: &str) -> Option<u32> {
        let at = self.sorted.binary_search_by(|special| (*special.text).cmp(text)).ok()?;
        Some(self.sorted[at].id)
    }

    /// Cuts `text` at the special tokens that `wanted` admits, given the
    /// token and the text after it. Longer tokens are matched before shorter
    /// ones, tokens of one length from left to right.
    pub(crate) fn split<'t>(
        &self,
        text: &'t str,
        wanted: impl Fn(&Special, &str) -> bool,
        mut segment: impl FnMut(Segment<'t>),
    ) {
        let mut plain = 0;
        self.matches(text, wanted, |found| {
            let special = &self.sorted[found.index as usize];
            let before = &text[plain.min(found.start())..found.start()];
            let before = if special.strips[0] { before.trim_end_matches(is_ascii_space) } else { before };
            if !before.is_empty() {
                segment(Segment::Text(before));
            }
            segment(Segment::Token(special.id));
            let after = &text[found.end()..];
            let kept = if special.strips[1] { after.trim_start_matches(is_ascii_space) } else { after };
            plain = text.len() - kept.len();
        });
        if plain < text.len() {
            segment(Segment::Text(&text[plain..]));
        }
    }

    /// Where the spelling of a special token that `wanted` admits begins, even
    /// if `text` ends before the spelling does, in order.
    pub(crate) fn spelling_starts(&self, text: &str, wanted: impl Fn(&Special) -> bool) -> Vec<usize> {
        let first_bytes = first_bytes(self.sorted.iter().filter(|special| wanted(special)));
        let mut starts = Vec::new();
        for (start, byte) in text.bytes().enumerate() {
            if !first_bytes[usize::from(byte)] {
                continue;
            }
            let mut spelled = false;
            let unfinished = self.follow(&text.as_bytes()[start..], |_, special| {
                spelled |= wanted(special);
            });
            if spelled || unfinished.iter().any(&wanted) {
                starts.push(start);
            }
        }
        starts
    }

    /// The bytes held on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        let text: usize = self.sorted.iter().map(|special| special.text.len()).sum();
        text + self.sorted.capacity() * size_of::<Special>() + size_of_val(&*self.first_bytes)
    }

    /// Shows `found` the matches of wanted tokens that remain where longer ones, and earlier ones
    /// among equals, come first; in order of start. Only the longest match at each place is held,
    /// and only for a stretch of matches that overlap.
    fn matches(&self, text: &str, wanted: impl Fn(&Special, &str) -> bool, mut found: impl FnMut(Match)) {
        let (mut overlapping, mut end) = (Vec::new(), 0);
        for (start, byte) in text.bytes().enumerate() {
            if start >= end && !overlapping.is_empty() {
                self.settle(text, std::mem::take(&mut overlapping), &wanted, &mut found);
            }
            if !self.first_bytes[usize::from(byte)] {
                continue;
            }
            if let Some(longest) = self.longest(text, start..text.len(), &wanted) {
                end = end.max(longest.end());
                overlapping.push(longest);
            }
        }
        self.settle(text, overlapping, &wanted, &mut found);
    }

    /// Chooses among matches that overlap, given the longest one at each start.
    fn settle(
        &self,
        text: &str,
        longest: Vec<Match>,
        wanted: &impl Fn(&Special, &str) -> bool,
        found: &mut impl FnMut(Match),
    ) {
        if longest.len() == 1 {
            return found(longest[0]);
        }
        let mut open = BinaryHeap::from(longest);
        let mut kept: BTreeMap<usize, Match> = BTreeMap::new();
        while let Some(best) = open.pop() {
            let start = best.start();
            let before = kept.range(..=start).next_back();
            if before.is_some_and(|(_, before)| before.end() > start) {
                continue;
            }
            match kept.range(start..best.end()).next() {
                None => _ = kept.insert(start, best),
                Some((&next, _)) => open.extend(self.longest(text, start..next, wanted)),
            }
        }
        kept.into_values().for_each(found);
    }

    /// The longest wanted token that is spelled at the start of `range` and ends inside of it.
    fn longest(
        &self,
        text: &str,
        range: std::ops::Range<usize>,
        wanted: &impl Fn(&Special, &str) -> bool,
    ) -> Option<Match> {
        let start = range.start;
        let mut longest = None;
        self.follow(&text.as_bytes()[range], |index, special| {
            if wanted(special, &text[start + special.text.len()..]) {
                let (length, index) = (special.text.len() as u32, index as u32);
                longest = Some(Match { length, start: Reverse(start), index });
            }
        });
        longest
    }

    /// Follows the bytes of `text`, narrowing the sorted list at each, and
    /// shows `spelled` every token that `text` begins with, and its place. Returns the longer
    /// tokens of which `text` as a whole is the beginning.
    fn follow(&self, text: &[u8], mut spelled: impl FnMut(usize, &Special)) -> &[Special] {
        let (mut from, mut to) = (0, self.sorted.len());
        for (depth, &byte) in text.iter().enumerate() {
            let candidates = &self.sorted[from..to];
            let at_depth = |special: &Special| special.text.as_bytes().get(depth).copied();
            let ends = [candidates.first(), candidates.last()].map(|special| special.and_then(at_depth));
            // They are sorted, so those between two that go on alike do so too.
            if ends != [Some(byte); 2] {
                to = from + candidates.partition_point(|special| at_depth(special) <= Some(byte));
                from += candidates.partition_point(|special| at_depth(special) < Some(byte));
            }
            if let Some(first) = self.sorted[from..to].first()
                && first.text.len() == depth + 1
            {
                spelled(from, first);
                from += 1;
            }
            if from == to {
                break;
            }
        }
        &self.sorted[from..to]
    }
}

fn first_bytes<'s>(specials: impl Iterator<Item = &'s Special>) -> [bool; 256] {
    let mut first_bytes = [false; 256];
    for special in specials {
        first_bytes[usize::from(special.text.as_bytes()[0])] = true;
    }
    first_bytes
}

fn is_ascii_space(character: char) -> bool {
    matches!(character, ' ' | '\t'..='\r')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn specials(entries: &[(&str, u32, bool)]) -> Specials {
        let make = |&(text, id, control): &(&str, u32, bool)| Special {
            text: text.into(),
            id,
            control,
            strips: [text.starts_with('{'), text.ends_with('}')],
        };
        Specials::new(entries.iter().map(make).collect())
    }

    fn show(specials: &Specials, text: &str, parse_special: bool) -> String {
        let mut shown = String::new();
        let wanted = |special: &Special, _: &str| parse_special || !special.control;
        specials.split(text, wanted, |segment| match segment {
            Segment::Text(text) => shown.push_str(&format!("({text})")),
            Segment::Token(id) => shown.push_str(&format!("#{id}")),
        });
        shown
    }

    #[test]
    fn control_tokens_need_parsing_and_user_defined_ones_do_not() {
        let specials = specials(&[("<s>", 1, true), ("<call>", 2, false)]);
        assert_eq!(show(&specials, "a<s>b<call>", true), "(a)#1(b)#2");
        assert_eq!(show(&specials, "a<s>b<call>", false), "(a<s>b)#2");
    }

    #[test]
    fn the_longest_match_wins_even_when_it_starts_later() {
        let specials = specials(&[("ab", 1, true), ("abc", 2, true), ("bcde", 3, true)]);
        assert_eq!(show(&specials, "xabcx", true), "(x)#2(x)");
        assert_eq!(show(&specials, "abcde", true), "(a)#3");
        assert_eq!(show(&specials, "ababc", true), "#1#2");
    }

    #[test]
    fn equal_lengths_match_from_the_left() {
        let specials = specials(&[("aa", 1, true), ("aaa", 2, true)]);
        assert_eq!(show(&specials, "aaaaaaaa", true), "#2#2#1");
    }

    #[test]
    fn adjacent_and_partial_spellings() {
        let specials = specials(&[("<|im|>", 1, true), ("é", 2, false)]);
        assert_eq!(show(&specials, "<|im|><|im|><|im|", true), "#1#1(<|im|)");
        assert_eq!(show(&specials, "è", true), "(è)");
        assert_eq!(show(&specials, "", true), "");
    }

    #[test]
    fn spellings_start_even_where_the_text_cuts_them_off() {
        let specials = specials(&[("<|im|>", 1, true), ("<s>", 2, true)]);
        let starts = |text: &str| specials.spelling_starts(text, |_| true);
        assert_eq!(starts("<<|im|> <s> <|im"), [1, 8, 12]);
        assert_eq!(starts("a <b> <|im| <"), [12]);
        assert_eq!(specials.spelling_starts("<s> <", |s| s.id == 1), [4]);
    }

    #[test]
    fn white_space_may_count_as_part_of_a_token() {
        let specials = specials(&[("{l", 1, true), ("r}", 2, true), ("<>", 3, true)]);
        assert_eq!(show(&specials, "a {l b", true), "(a)#1( b)");
        assert_eq!(show(&specials, "a r} \n b r} <> \u{a0}", true), "(a )#2(b )#2#3( \u{a0})");
        assert_eq!(show(&specials, "r} {l", true), "#2#1");
    }

    #[test]
    fn one_text_twice_is_the_lower_id() {
        let specials = specials(&[("<a>", 9, true), ("<a>", 4, true), ("", 5, true)]);
        assert_eq!(show(&specials, "<a>", true), "#4");
        assert_eq!(specials.iter().count(), 1);
    }

    /// Tokens of white space that are wanted at every place of a long run: what is held is one
    /// match for each byte.
    #[test]
    fn long_runs_are_cut_into_the_longest_tokens() {
        let runs: Vec<String> = (1..=31).map(|length| " ".repeat(length)).collect();
        let entries: Vec<_> = (1..).zip(&runs).map(|(id, run)| (run.as_str(), id, false)).collect();
        let specials = specials(&entries);
        assert_eq!(size_of::<Match>(), 16);
        for (count, rest) in [(1000, Some(7)), (1000, None)] {
            let text = " ".repeat(31 * count + rest.unwrap_or(0) as usize);
            let mut ids = Vec::new();
            specials.split(&text, |_, _| true, |segment| ids.push(segment));
            assert!(ids[..count].iter().all(|id| *id == Segment::Token(31)));
            assert_eq!(ids.get(count), rest.map(Segment::Token).as_ref());
        }
    }

    /// Every match, the longest kept first, earlier ones first among equals.
    fn by_definition(
        specials: &Specials,
        text: &str,
        wanted: impl Fn(&Special, &str) -> bool,
    ) -> Vec<(usize, u32)> {
        let mut all = Vec::new();
        for start in 0..text.len() {
            for special in specials.iter().filter(|special| text[start..].starts_with(&*special.text)) {
                if wanted(special, &text[start + special.text.len()..]) {
                    all.push((Reverse(special.text.len()), start, special.id));
                }
            }
        }
        all.sort();
        let mut kept: Vec<(usize, usize, u32)> = Vec::new();
        for (Reverse(length), start, id) in all {
            if kept.iter().all(|&(other, end, _)| start + length <= other || end <= start) {
                kept.push((start, start + length, id));
            }
        }
        kept.sort_unstable();
        kept.into_iter().map(|(start, _, id)| (start, id)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn matches_are_those_of_the_definition(
            tokens in prop::collection::vec("[ab]{1,6}", 1..12),
            text in "[abc]{0,60}",
        ) {
            let entries: Vec<_> = (0..).zip(&tokens).map(|(id, text)| (text.as_str(), id, false)).collect();
            let specials = specials(&entries);
            let wanted = |special: &Special, after: &str| !special.id.is_multiple_of(3) || !after.starts_with('b');
            let mut found = Vec::new();
            specials.matches(&text, wanted, |one| found.push((one.start(), specials.sorted[one.index as usize].id)));
            prop_assert_eq!(found, by_definition(&specials, &text, wanted));
        }
    }
}
