//! Runs of decimal digits in groups of three.
//!
//! The expressions are quadratic in the length of a run. These functions take linear time.

use super::super::char_set::CharSet;
use super::threes;

/// The classes that tell where digits end and whether a word goes on behind them.
#[derive(Debug)]
pub(super) struct Digits {
    digits: CharSet,
    /// What has no word boundary between itself and a digit before it, but for digits.
    word: CharSet,
}

impl Digits {
    /// Builds the classes.
    pub(super) fn new() -> Self {
        Self { digits: CharSet::new(r"\p{Nd}"), word: CharSet::new(r"[\p{L}\p{M}\p{N}\p{Pc}]") }
    }

    /// Cuts `text` as an isolated `(?=(\d{3})+(?!\d))` does.
    pub(super) fn cut_in_threes<'t>(&self, text: &'t str, piece: &mut dyn FnMut(&'t str)) {
        let mut done = 0;
        for (start, run) in self.runs(text) {
            let count = run.chars().count();
            for (index, (at, _)) in run.char_indices().enumerate() {
                if (count - index).is_multiple_of(3) {
                    piece(&text[done..start + at]);
                    done = start + at;
                }
            }
        }
        piece(&text[done..]);
    }

    /// Cuts `text` as an isolated `\d{1,3}(?=(?:\d{3})*\b)` does.
    pub(super) fn cut_before_boundary<'t>(&self, text: &'t str, piece: &mut dyn FnMut(&'t str)) {
        let mut done = 0;
        for (start, run) in self.runs(text) {
            let end = start + run.len();
            if text[end..].chars().next().is_some_and(|next| self.word.contains(next)) {
                continue;
            }
            piece(&text[done..start]);
            let mut ends = run.char_indices().map(|(at, _)| at).skip(1).chain([run.len()]);
            done = start;
            for count in threes(run.chars().count()) {
                let next = start + ends.nth(count - 1).expect("the groups have as many digits as the run");
                piece(&text[done..next]);
                done = next;
            }
        }
        piece(&text[done..]);
    }

    /// The runs of digits, and where each begins.
    fn runs<'t>(&self, text: &'t str) -> impl Iterator<Item = (usize, &'t str)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = at + text[at..].find(|c| self.digits.contains(c))?;
            let end = text[start..].find(|c| !self.digits.contains(c));
            at = end.map_or(text.len(), |end| start + end);
            Some((start, &text[start..at]))
        })
    }
}
