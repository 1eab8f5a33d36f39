//! Sets of characters, written as regex classes.

use regex_syntax::hir::{Class, HirKind};

/// The characters of a regex class, as ranges in order.
#[derive(Debug)]
pub(crate) struct CharSet {
    ranges: Vec<(char, char)>,
}

impl CharSet {
    /// The set that `pattern`, a class, matches.
    pub(crate) fn new(pattern: &str) -> Self {
        let parsed = regex_syntax::parse(pattern).expect("the pattern is a constant");
        let HirKind::Class(Class::Unicode(class)) = parsed.kind() else {
            unreachable!("the pattern is a class of characters")
        };
        Self { ranges: class.iter().map(|range| (range.start(), range.end())).collect() }
    }

    /// Whether the set has `character`.
    pub(crate) fn contains(&self, character: char) -> bool {
        let after = self.ranges.partition_point(|&(start, _)| start <= character);
        after > 0 && character <= self.ranges[after - 1].1
    }

    /// The bytes held on the heap.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.ranges.capacity() * size_of::<(char, char)>()
    }
}
