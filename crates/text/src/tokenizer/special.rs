//! Finding special and user-defined tokens in text before it is split into
//! words.

use std::collections::BTreeMap;

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

#[derive(Debug, Clone, Copy)]
struct Match {
    start: usize,
    end: usize,
    id: u32,
    strips: [bool; 2],
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
        for found in without_overlaps(self.matches(text, wanted)) {
            let before = &text[plain.min(found.start)..found.start];
            let before = if found.strips[0] { before.trim_end_matches(is_ascii_space) } else { before };
            if !before.is_empty() {
                segment(Segment::Text(before));
            }
            segment(Segment::Token(found.id));
            let after = &text[found.end..];
            let kept = if found.strips[1] { after.trim_start_matches(is_ascii_space) } else { after };
            plain = text.len() - kept.len();
        }
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
            let unfinished = self.follow(&text.as_bytes()[start..], |special| {
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

    /// Every place where a wanted token is spelled, overlaps included, in
    /// order of start and then of length.
    fn matches(&self, text: &str, wanted: impl Fn(&Special, &str) -> bool) -> Vec<Match> {
        let mut found = Vec::new();
        for (start, byte) in text.bytes().enumerate() {
            if !self.first_bytes[usize::from(byte)] {
                continue;
            }
            self.follow(&text.as_bytes()[start..], |special| {
                let end = start + special.text.len();
                if wanted(special, &text[end..]) {
                    found.push(Match { start, end, id: special.id, strips: special.strips });
                }
            });
        }
        found
    }

    /// Follows the bytes of `text`, narrowing the sorted list at each, and
    /// shows `spelled` every token that `text` begins with. Returns the longer
    /// tokens of which `text` as a whole is the beginning.
    fn follow(&self, text: &[u8], mut spelled: impl FnMut(&Special)) -> &[Special] {
        let mut candidates = self.sorted.as_slice();
        for (depth, &byte) in text.iter().enumerate() {
            let at_depth = |special: &Special| special.text.as_bytes().get(depth).copied();
            let from = candidates.partition_point(|special| at_depth(special) < Some(byte));
            let to = candidates.partition_point(|special| at_depth(special) <= Some(byte));
            candidates = &candidates[from..to];
            if let Some((first, longer)) = candidates.split_first()
                && first.text.len() == depth + 1
            {
                spelled(first);
                candidates = longer;
            }
            if candidates.is_empty() {
                break;
            }
        }
        candidates
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

/// Keeps the longest matches, earlier ones first among equals, in order of
/// start.
fn without_overlaps(mut matches: Vec<Match>) -> Vec<Match> {
    let overlapping = matches.windows(2).any(|pair| pair[0].end > pair[1].start);
    if !overlapping {
        return matches;
    }
    matches.sort_by_key(|found| (std::cmp::Reverse(found.end - found.start), found.start));
    let mut kept: BTreeMap<usize, Match> = BTreeMap::new();
    for found in matches {
        let before = kept.range(..found.end).next_back();
        if before.is_none_or(|(_, before)| before.end <= found.start) {
            kept.insert(found.start, found);
        }
    }
    kept.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
