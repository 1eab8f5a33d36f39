//! Character classes for the hand-written pre-tokenizers.

use regex_syntax::hir::{Class, HirKind};

/// What a character counts as in the splitting rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum CharClass {
    /// None of the others: punctuation, symbols, marks, controls.
    Other = 0,
    /// General category L.
    Letter = 1,
    /// General category N.
    Number = 2,
    /// The property White_Space.
    Space = 3,
}

/// A two-level table from code points to [`CharClass`].
///
/// Pages of 256 code points are shared where they are equal, so that the table
/// takes about 30 kB.
#[derive(Debug)]
pub(super) struct CharClasses {
    page_of: Vec<u8>,
    pages: Vec<[CharClass; PAGE]>,
}

const PAGE: usize = 256;
const CODE_POINTS: usize = 0x11_0000;

impl CharClasses {
    /// Builds the table from the Unicode data of `regex-syntax`.
    pub(super) fn new() -> Self {
        let mut all = vec![CharClass::Other; CODE_POINTS];
        fill(&mut all, r"\p{L}", CharClass::Letter);
        fill(&mut all, r"\p{N}", CharClass::Number);
        for (point, class) in all.iter_mut().enumerate() {
            if char::from_u32(point as u32).is_some_and(char::is_whitespace) {
                *class = CharClass::Space;
            }
        }
        let mut table = Self { page_of: Vec::with_capacity(CODE_POINTS / PAGE), pages: Vec::new() };
        for page in all.as_chunks::<PAGE>().0 {
            table.push_page(page);
        }
        table.pages.shrink_to_fit();
        table
    }

    /// The class of `character`.
    #[inline]
    pub(super) fn of(&self, character: char) -> CharClass {
        let point = character as usize;
        self.pages[usize::from(self.page_of[point / PAGE])][point % PAGE]
    }

    /// The bytes held on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        self.page_of.capacity() + self.pages.capacity() * PAGE
    }

    fn push_page(&mut self, page: &[CharClass; PAGE]) {
        let index = self.pages.iter().position(|known| known == page);
        let index = index.unwrap_or_else(|| {
            self.pages.push(*page);
            self.pages.len() - 1
        });
        let index = u8::try_from(index).expect("Unicode has fewer than 256 distinct pages");
        self.page_of.push(index);
    }
}

/// Sets `class` on every code point of the regex class `pattern`.
fn fill(all: &mut [CharClass], pattern: &str, class: CharClass) {
    let parsed = regex_syntax::parse(pattern).expect("the pattern is a constant");
    let HirKind::Class(Class::Unicode(ranges)) = parsed.kind() else {
        unreachable!("a general category parses to a class");
    };
    for range in ranges.iter() {
        all[range.start() as usize..=range.end() as usize].fill(class);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_regex_engine_on_every_character() {
        let classes = CharClasses::new();
        let letter = fancy_regex::Regex::new(r"\p{L}").unwrap();
        let number = fancy_regex::Regex::new(r"\p{N}").unwrap();
        let space = fancy_regex::Regex::new(r"\s").unwrap();
        for character in '\0'..=char::MAX {
            let mut buffer = [0; 4];
            let text: &str = character.encode_utf8(&mut buffer);
            let expected = if space.is_match(text).unwrap() {
                CharClass::Space
            } else if letter.is_match(text).unwrap() {
                CharClass::Letter
            } else if number.is_match(text).unwrap() {
                CharClass::Number
            } else {
                CharClass::Other
            };
            assert_eq!(classes.of(character), expected, "{character:?}");
        }
    }
}
