//! Pre-tokenizers: split text into words. BPE merges only inside a word.
//!
//! A model file names one (`tokenizer.ggml.pre`). `table` has a row with rules and flags for each
//! name, `rules` the published regular expressions, and `scan` hand-written versions of the
//! commonest ones.

mod classes;
mod digits;
mod rules;
mod scan;
mod table;

pub use table::{Alphabet, PRE_TOKENIZERS, PreTokenizerInfo};

use fancy_regex::Regex;

use classes::{CharClass, CharClasses};
use digits::Digits;
use rules::Pass;
use scan::Words;

/// The rules of one name, ready to be applied.
#[derive(Debug)]
pub(super) struct PreTokenizer {
    passes: Vec<Step>,
    classes: CharClasses,
}

/// A [`Pass`] with its expression compiled.
#[derive(Debug)]
enum Step {
    Regex(Box<Regex>),
    Words(Words),
    Numbers,
    NumbersInThrees,
    DigitCuts(Digits),
    DigitsBeforeBoundary(Digits),
    Lines,
}

impl PreTokenizer {
    /// Compiles the rules of a row.
    pub(super) fn new(info: &PreTokenizerInfo) -> Self {
        Self { passes: info.passes.iter().map(Step::new).collect(), classes: CharClasses::new() }
    }

    /// Calls `word` with each piece of `text`, in order and without gaps.
    pub(super) fn split<'t>(&self, text: &'t str, mut word: impl FnMut(&'t str)) {
        self.split_from(0, text, &mut word);
    }

    /// The bytes held on the heap, without those of compiled expressions.
    pub(super) fn memory_bytes(&self) -> usize {
        self.classes.memory_bytes()
    }

    /// The passes from `index` on; each cuts the pieces of the one before.
    fn split_from<'t>(&self, index: usize, text: &'t str, word: &mut dyn FnMut(&'t str)) {
        if text.is_empty() {
            return;
        }
        let Some(step) = self.passes.get(index) else { return word(text) };
        let next = &mut |piece: &'t str| self.split_from(index + 1, piece, word);
        match step {
            Step::Words(words) => words.split(&self.classes, text, next),
            Step::Regex(regex) => by_regex(regex, text, next),
            Step::Numbers => self.around_numbers(text, next, |run| vec![1; run]),
            Step::NumbersInThrees => self.around_numbers(text, next, threes),
            Step::DigitCuts(digits) => digits.cut_in_threes(text, next),
            Step::DigitsBeforeBoundary(digits) => digits.cut_before_boundary(text, next),
            Step::Lines => around_runs(text, |c| c == '\n', next, |run| vec![run]),
        }
    }

    fn around_numbers<'t>(
        &self,
        text: &'t str,
        piece: &mut dyn FnMut(&'t str),
        cut: impl Fn(usize) -> Vec<usize>,
    ) {
        around_runs(text, |c| self.classes.of(c) == CharClass::Number, piece, cut);
    }
}

impl Step {
    fn new(pass: &Pass) -> Self {
        match pass {
            Pass::Regex(text) => Self::Regex(Box::new(compile(text))),
            Pass::Words(words) => Self::Words(*words),
            Pass::Numbers => Self::Numbers,
            Pass::NumbersInThrees => Self::NumbersInThrees,
            Pass::DigitCuts => Self::DigitCuts(Digits::new()),
            Pass::DigitsBeforeBoundary => Self::DigitsBeforeBoundary(Digits::new()),
            Pass::Lines => Self::Lines,
        }
    }
}

/// Expressions are constants that never look back far, so that the number of
/// steps needs no bound.
fn compile(text: &str) -> Regex {
    let mut builder = fancy_regex::RegexBuilder::new(text);
    builder.backtrack_limit(usize::MAX).build().expect("the expression is a constant")
}

/// The matches of `regex` and what lies between them.
fn by_regex<'t>(regex: &Regex, text: &'t str, piece: &mut dyn FnMut(&'t str)) {
    let mut done = 0;
    // An engine that gives up leaves the rest of the text as one piece.
    for found in regex.find_iter(text).map_while(Result::ok) {
        piece(&text[done..found.start()]);
        piece(found.as_str());
        done = found.end();
    }
    piece(&text[done..]);
}

/// Cuts runs of `wanted` characters out of `text`, and each run into as many
/// characters as `cut` says for its length.
fn around_runs<'t>(
    text: &'t str,
    wanted: impl Fn(char) -> bool,
    piece: &mut dyn FnMut(&'t str),
    cut: impl Fn(usize) -> Vec<usize>,
) {
    let mut rest = text;
    while !rest.is_empty() {
        let start = rest.find(&wanted).unwrap_or(rest.len());
        let (before, from) = rest.split_at(start);
        let end = from.find(|c| !wanted(c)).unwrap_or(from.len());
        let (mut run, after) = from.split_at(end);
        piece(before);
        for count in cut(run.chars().count()) {
            let end = run.char_indices().nth(count).map_or(run.len(), |(at, _)| at);
            let (part, others) = run.split_at(end);
            piece(part);
            run = others;
        }
        rest = after;
    }
}

/// Lengths of the parts of a run of `run` characters: threes, and before them
/// what is left over.
fn threes(run: usize) -> Vec<usize> {
    let first = Some(run % 3).filter(|&first| first > 0);
    first.into_iter().chain(std::iter::repeat_n(3, run / 3)).collect()
}

#[cfg(test)]
mod tests;
