//! Speculation: tokens that may follow are fed together with the last one and checked by the same
//! step.
//!
//! A row of a step has the same bits whatever else the step feeds, and a draw depends on the seed
//! and the token's index alone. So a token that was guessed right is exactly the one that would
//! have been chosen without the guess, and one that was guessed wrong leaves no trace. Guesses cost
//! time only: how far they go is decided by what steps cost and by how often guesses were right.

use std::collections::HashMap;

/// Guesses what follows.
pub(crate) trait Drafter: Send {
    /// Up to `most` tokens that may follow `tokens`, which grow from call to call.
    fn draft(&mut self, tokens: &[u32], most: usize) -> Option<Draft>;
}

/// Tokens that may follow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Draft {
    pub(crate) tokens: Vec<u32>,
    /// How sure they are.
    pub(crate) confidence: Confidence,
}

/// How long the text was that agrees with what comes before a guess. Guesses of one kind are right
/// about equally often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Confidence {
    /// A few tokens.
    #[default]
    Short,
    /// A phrase.
    Medium,
    /// A passage.
    Long,
    /// A constraint allows no other text.
    Forced,
}

/// Tokens that have to agree before a guess is made.
const KEY: usize = 3;
/// Earlier places that are compared, the last ones first.
const PLACES: usize = 8;
/// Agreeing tokens that are counted at most.
const LONGEST: usize = 32;

/// Looks for the last tokens at an earlier place, and guesses what followed there: text that is
/// rewritten, quoted or continued repeats itself.
#[derive(Default)]
pub(crate) struct Lookup {
    /// For each token sequence of the key's length the place behind its last occurrence.
    last: HashMap<[u32; KEY], u32>,
    /// For each place the one before it with the same key.
    before: Vec<u32>,
}

/// No earlier place.
const NOWHERE: u32 = u32::MAX;

impl Lookup {
    /// Takes in what has been added.
    fn follow(&mut self, tokens: &[u32]) {
        for place in self.before.len()..tokens.len() {
            let key = place.checked_sub(KEY).and_then(|start| tokens[start..].first_chunk::<KEY>());
            let earlier = key.and_then(|&key| self.last.insert(key, place as u32));
            self.before.push(earlier.unwrap_or(NOWHERE));
        }
    }
}

impl Drafter for Lookup {
    fn draft(&mut self, tokens: &[u32], most: usize) -> Option<Draft> {
        self.follow(tokens);
        let key = tokens.last_chunk::<KEY>()?;
        let agreeing = |place: usize| {
            let pairs = tokens[..place].iter().rev().zip(tokens.iter().rev());
            pairs.take(LONGEST).take_while(|(one, other)| one == other).count()
        };
        let mut best = (0, 0);
        let mut next = self.last.get(key).copied().unwrap_or(NOWHERE);
        for _ in 0..PLACES {
            if next == NOWHERE {
                break;
            }
            let place = next as usize;
            let length = agreeing(place);
            if length > best.0 {
                best = (length, place);
            }
            next = self.before[place];
        }
        let (length, place) = best;
        let confidence = match length {
            0..KEY => return None,
            KEY..6 => Confidence::Short,
            6..16 => Confidence::Medium,
            _ => Confidence::Long,
        };
        let tokens = &tokens[place..tokens.len().min(place + most)];
        (!tokens.is_empty()).then(|| Draft { tokens: tokens.to_vec(), confidence })
    }
}

/// How often guesses were right, by their confidence.
#[derive(Debug, Clone)]
pub(crate) struct Acceptance([Share; 4]);

/// Guessed tokens, and those of them that were right, older ones counting less.
#[derive(Debug, Clone, Copy)]
struct Share {
    right: f64,
    tried: f64,
    /// What is expected before anything was tried.
    prior: f64,
}

/// The expectation counts as much as so many guesses.
const PRIOR_WEIGHT: f64 = 4.0;
/// What is left of earlier guesses' weight after one more.
const KEPT: f64 = 0.9;
/// The same where a guess could have been made and was not worth it: after a while it is tried
/// again.
const KEPT_UNTRIED: f64 = 0.99;

impl Default for Acceptance {
    fn default() -> Acceptance {
        Acceptance([0.35, 0.6, 0.85, 0.85].map(|prior| Share { right: 0.0, tried: 0.0, prior }))
    }
}

impl Acceptance {
    /// How likely the next guessed token is right, if those before it are.
    pub(crate) fn probability(&self, confidence: Confidence) -> f64 {
        let Share { right, tried, prior } = self.0[confidence as usize];
        (prior * PRIOR_WEIGHT + right) / (PRIOR_WEIGHT + tried)
    }

    /// Of `guessed` tokens the first `right` ones were right.
    pub(crate) fn record(&mut self, confidence: Confidence, guessed: usize, right: usize) {
        let share = &mut self.0[confidence as usize];
        share.right = share.right * KEPT + right as f64;
        share.tried = share.tried * KEPT + (right + usize::from(right < guessed)) as f64;
    }

    /// A guess was not worth a try.
    pub(crate) fn skip(&mut self, confidence: Confidence) {
        let share = &mut self.0[confidence as usize];
        share.right *= KEPT_UNTRIED;
        share.tried *= KEPT_UNTRIED;
    }
}

/// How many of up to `most` guessed tokens to feed beside `rows` rows that are expected to give
/// `tokens` tokens: as many as give most tokens in a second. `probability` is that of each being
/// right, `micros` the time of a step by its rows.
pub(crate) fn worthwhile(
    most: usize,
    rows: usize,
    tokens: f64,
    probability: f64,
    micros: impl Fn(usize) -> f64,
) -> usize {
    let (mut best, mut best_speed) = (0, tokens / micros(rows) * LEAST_GAIN);
    let (mut expected, mut chain) = (tokens, 1.0);
    for count in 1..=most {
        chain *= probability;
        expected += chain;
        let speed = expected / micros(rows + count);
        if speed > best_speed {
            (best, best_speed) = (count, speed);
        }
    }
    best
}

/// A guess has to promise so many times the speed without it.
const LEAST_GAIN: f64 = 1.03;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_followed_the_longest_agreeing_place_is_guessed() {
        let mut lookup = Lookup::default();
        assert_eq!(lookup.draft(&[1, 2], 4), None);
        let mut lookup = Lookup::default();
        let text = [9, 1, 2, 3, 50, 51, 8, 1, 2, 3, 60, 61, 62, 9, 1, 2, 3];
        let draft = lookup.draft(&text, 2).unwrap();
        assert_eq!(draft, Draft { tokens: vec![50, 51], confidence: Confidence::Short });
        let later = [&text[..], &[60, 1, 2, 3]].concat();
        assert_eq!(
            lookup.draft(&later, 3).unwrap().tokens,
            [60, 1, 2],
            "the last of places that agree alike"
        );
        let passage: Vec<u32> = (100..120).collect();
        let twice = [&later[..], &passage, &passage[..19]].concat();
        let draft = lookup.draft(&twice, 8).unwrap();
        assert_eq!(
            draft,
            Draft { tokens: vec![119, 100, 101, 102, 103, 104, 105, 106], confidence: Confidence::Long }
        );
        assert_eq!(lookup.draft(&[&twice[..], &[7]].concat(), 8), None);
    }

    #[test]
    fn guesses_are_as_long_as_they_pay() {
        let cheap = |rows: usize| 1.0 + 0.1 * (rows - 1) as f64;
        let dear = |rows: usize| rows as f64;
        assert_eq!(worthwhile(8, 1, 1.0, 1.0, cheap), 8);
        assert_eq!(worthwhile(8, 1, 1.0, 0.99, dear), 0);
        assert_eq!(worthwhile(8, 1, 1.0, 0.05, cheap), 0);
        let some = worthwhile(16, 1, 1.0, 0.7, cheap);
        assert!((2..7).contains(&some), "{some}");
        assert!(worthwhile(16, 4, 4.0, 0.7, cheap) <= some);
    }

    #[test]
    fn guesses_that_fail_stop_and_are_tried_again_later() {
        let mut acceptance = Acceptance::default();
        let first = acceptance.probability(Confidence::Short);
        (0..6).for_each(|_| acceptance.record(Confidence::Short, 3, 0));
        let failed = acceptance.probability(Confidence::Short);
        assert!(failed < first / 2.0);
        (0..300).for_each(|_| acceptance.skip(Confidence::Short));
        assert!(acceptance.probability(Confidence::Short) > 0.8 * first);
        (0..20).for_each(|_| acceptance.record(Confidence::Short, 5, 5));
        assert!(acceptance.probability(Confidence::Short) > 0.9);
        assert_eq!(acceptance.probability(Confidence::Long), 0.85);
    }
}
