//! Unigram: the tokens whose scores have the highest sum.
//!
//! Kudo, "Subword Regularization" (2018), with the search of SentencePiece: the best segmentation
//! of each prefix is kept (Viterbi), and an unknown character costs ten more than the lowest score.
//! Text is normalised first, so decoding gives the normalised text.

use super::bpe::NO_TOKEN;
use super::charsmap::CharsMap;
use super::prefixes::Prefixes;
use super::vocabulary::Vocabulary;
use super::{TokenType, TokenizerError, TokenizerSpec};

/// How much lower than the lowest score an unknown character counts.
const UNKNOWN_PENALTY: f64 = 10.0;

/// What stands where no spelling ends.
const NOWHERE: u32 = NO_TOKEN - 1;

/// The tables of one vocabulary.
#[derive(Debug)]
pub(super) struct Unigram {
    prefixes: Prefixes,
    scores: Vec<f32>,
    /// The bytes of the longest token.
    longest: usize,
    unknown_score: f64,
    unk: Option<u32>,
    charsmap: Option<CharsMap>,
    adds_prefix: bool,
    merges_spaces: bool,
}

impl Unigram {
    /// Sorts the tokens of `spec`, which are `vocabulary`.
    pub(super) fn new(spec: &TokenizerSpec, vocabulary: &Vocabulary) -> Result<Self, TokenizerError> {
        let normal = |id: &u32| vocabulary.token_type(*id) == TokenType::Normal;
        let ids = || (0..vocabulary.len() as u32).filter(normal);
        let lowest = ids().map(|id| spec.scores[id as usize]).fold(f32::MAX, f32::min);
        let charsmap = &spec.precompiled_charsmap;
        Ok(Self {
            prefixes: Prefixes::new(vocabulary, ids()),
            unknown_score: f64::from(lowest) - UNKNOWN_PENALTY,
            scores: spec.scores.clone(),
            longest: ids().map(|id| vocabulary.bytes(id).len()).max().unwrap_or(0),
            unk: spec.unk,
            charsmap: if charsmap.is_empty() { None } else { Some(CharsMap::new(charsmap)?) },
            adds_prefix: spec.add_space_prefix.unwrap_or(false),
            merges_spaces: spec.remove_extra_whitespaces,
        })
    }

    /// Whether a space is put before text that begins or follows a special token.
    pub(super) fn adds_prefix(&self) -> bool {
        self.adds_prefix || self.merges_spaces
    }

    /// Appends the tokens of `text`.
    pub(super) fn encode(&self, vocabulary: &Vocabulary, text: &str, out: &mut Vec<u32>) {
        let text = self.normalised(text);
        // The last token of the best spelling that ends at each place, and the sums of scores of
        // the next few places.
        let mut last = vec![NOWHERE; text.len() + 1];
        let mut sums = vec![0.0; self.longest.max(char::MAX.len_utf8()) + 1];
        let slots = sums.len();
        for (start, character) in text.char_indices() {
            let (so_far, length) = (sums[start % slots], character.len_utf8());
            let mut offer = |id: u32, length: usize, score: f64| {
                let (champion, sum) = (&mut last[start + length], &mut sums[(start + length) % slots]);
                // The first offer counts whatever it is, so that bad scores break no chain.
                if *champion == NOWHERE || *sum < so_far + score {
                    (*champion, *sum) = (id, so_far + score);
                }
            };
            let mut alone = false;
            self.prefixes.of(vocabulary, &text.as_bytes()[start..], |id, end| {
                alone |= end == length;
                offer(id, end, f64::from(self.scores[id as usize]));
            });
            if !alone {
                offer(NO_TOKEN, length, self.unknown_score);
            }
        }
        self.collect(vocabulary, &text, &last, out);
    }

    /// The unknown token, for bytes that are no text.
    pub(super) fn unknown(&self) -> Option<u32> {
        self.unk
    }

    /// The bytes held on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        self.prefixes.memory_bytes()
            + self.scores.capacity() * size_of::<f32>()
            + self.charsmap.as_ref().map_or(0, CharsMap::memory_bytes)
    }

    /// Follows the best spelling from the end; unknown characters in a row are
    /// one unknown token.
    fn collect(&self, vocabulary: &Vocabulary, text: &str, last: &[u32], out: &mut Vec<u32>) {
        let first = out.len();
        let (mut rest, mut after_unknown) = (text, false);
        while let Some(character) = rest.chars().next_back() {
            let id = last[rest.len()];
            let unknown = id == NO_TOKEN;
            let length = if unknown { character.len_utf8() } else { vocabulary.bytes(id).len() };
            match id {
                NO_TOKEN if after_unknown => {}
                NO_TOKEN => out.extend(self.unk),
                id => out.push(id),
            }
            (rest, after_unknown) = (&rest[..rest.len() - length], unknown);
        }
        out[first..].reverse();
    }

    /// The text with its characters replaced and its spaces as the vocabulary
    /// wants them.
    fn normalised(&self, text: &str) -> String {
        let mut normalised = String::with_capacity(text.len() + 8);
        let (mut in_word, mut prefixed) = (false, false);
        let mut push = |replacement: &str| {
            for character in replacement.chars() {
                let space = character == ' ';
                if !space && !in_word && (self.merges_spaces || self.adds_prefix && !prefixed) {
                    normalised.push(' ');
                    prefixed = true;
                }
                in_word = !space;
                match character {
                    ' ' if self.merges_spaces => {}
                    '\u{2581}' => normalised.push(' '),
                    _ => normalised.push(character),
                }
            }
        };
        let mut rest = text;
        while let Some(character) = rest.chars().next() {
            let found = self.charsmap.as_ref().and_then(|map| map.longest(rest));
            let length = character.len_utf8();
            let (length, replacement) = found.unwrap_or((length, &rest[..length]));
            push(replacement);
            rest = &rest[length..];
        }
        normalised
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DecodeOptions, EncodeOptions, Tokenizer};
    use proptest::prelude::*;

    const PIECES: &[(&str, f32)] =
        &[("▁", -2.0), ("a", -3.0), ("b", -3.0), ("ab", -4.0), ("▁a", -5.5), ("ba", -4.5), ("bab", -6.0)];

    fn spec() -> TokenizerSpec {
        let mut spec = TokenizerSpec { model: "t5".into(), ..TokenizerSpec::default() };
        spec.push_token("<pad>", TokenType::Control);
        spec.push_token("</s>", TokenType::Control);
        spec.push_token("<unk>", TokenType::Unknown);
        spec.scores = vec![0.0; 3];
        for (text, score) in PIECES {
            spec.push_token(text, TokenType::Normal);
            spec.scores.push(*score);
        }
        spec
    }

    #[test]
    fn unknown_characters_in_a_row_are_one_token_and_the_end_is_added() {
        let tokenizer = Tokenizer::new(spec()).unwrap();
        let added = EncodeOptions { add_special: true, parse_special: false };
        assert_eq!(tokenizer.encode("abéüa", added).unwrap(), [6, 2, 4, 1]);
        assert_eq!(tokenizer.encode("", added).unwrap(), [1]);
    }

    #[test]
    fn spaces_are_as_the_vocabulary_wants_them() {
        let mut spec = spec();
        let ids = |spec: &TokenizerSpec| {
            let tokenizer = Tokenizer::new(spec.clone()).unwrap();
            let ids = tokenizer.encode("  b  b ", EncodeOptions::default()).unwrap();
            (ids.clone(), tokenizer.decode(&ids, DecodeOptions::default()))
        };
        assert_eq!(ids(&spec), (vec![3, 3, 5, 3, 3, 5, 3], "  b  b ".to_owned()));
        spec.remove_extra_whitespaces = true;
        assert_eq!(ids(&spec), (vec![3, 5, 3, 5], "b b".to_owned()));
    }

    /// The highest sum of scores over all ways to spell `text`.
    fn highest(text: &str) -> f64 {
        let ends = PIECES.iter().filter(|(piece, _)| text.starts_with(piece));
        let sums = ends.map(|(piece, score)| f64::from(*score) + highest(&text[piece.len()..]));
        if text.is_empty() { 0.0 } else { sums.fold(f64::NEG_INFINITY, f64::max) }
    }

    proptest! {
        #[test]
        fn the_sum_of_scores_is_the_highest(text in "[ab ]{0,10}") {
            let (spec, tokenizer) = (spec(), Tokenizer::new(spec()).unwrap());
            let ids = tokenizer.encode(&text, EncodeOptions::default()).unwrap();
            let sum: f64 = ids.iter().map(|&id| f64::from(spec.scores[id as usize])).sum();
            prop_assert!((sum - highest(&text.replace(' ', "▁"))).abs() < 1e-9);
            prop_assert_eq!(tokenizer.decode(&ids, DecodeOptions::default()), text);
        }

        #[test]
        fn any_scores_and_tables_do(
            scores in prop::collection::vec(-f32::MAX..f32::MAX, 10),
            charsmap in prop::collection::vec(any::<u8>(), 0..64),
            text in "\\PC{0,20}",
        ) {
            let mut spec = spec();
            spec.scores = scores;
            spec.precompiled_charsmap = charsmap;
            if let Ok(tokenizer) = Tokenizer::new(spec) {
                tokenizer.encode(&text, EncodeOptions::default()).unwrap();
            }
        }
    }
}
