//! Which tokens go into the next step: a pure function of the running sequences and a budget.
//!
//! Sequences that generate come first with their next token each, then pieces of prompts in order of arrival.

/// A sequence that takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Tokens that are known but not yet in the cache; at least one.
    pub(crate) pending: u32,
}

/// Bounds of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Tokens in the step.
    pub(crate) tokens: u32,
    /// Sequences that may run.
    pub(crate) slots: usize,
}

/// The prompts behind the oldest one share at least one token in this many.
const SHARE_BEHIND_THE_OLDEST: u32 = 4;

/// Divides a budget of tokens: those of each running sequence, in order of arrival; 0 for one that has to wait for a step.
///
/// A sequence with one pending token gets it before any prompt. Of the rest the oldest prompt gets all but a quarter,
/// which prompts behind it use in order, so that a short prompt does not wait for the end of a long one; what they leave
/// goes back to the oldest.
pub(crate) fn schedule(running: &[Candidate], mut budget: u32) -> Vec<u32> {
    let mut tokens = vec![0; running.len()];
    for (given, candidate) in tokens.iter_mut().zip(running) {
        if candidate.pending == 1 && budget > 0 {
            *given = 1;
            budget -= 1;
        }
    }
    let mut prompts: Vec<usize> =
        (0..running.len()).filter(|&index| tokens[index] < running[index].pending).collect();
    let reserve = if prompts.len() > 1 { budget / SHARE_BEHIND_THE_OLDEST } else { 0 };
    if let Some(&oldest) = prompts.first() {
        let most = budget - reserve;
        budget -= give(&mut tokens[oldest], running[oldest], most);
    }
    let oldest = usize::from(!prompts.is_empty());
    prompts.rotate_left(oldest);
    for index in prompts {
        let most = budget;
        budget -= give(&mut tokens[index], running[index], most);
    }
    tokens
}

fn give(given: &mut u32, candidate: Candidate, most: u32) -> u32 {
    let more = (candidate.pending - *given).min(most);
    *given += more;
    more
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan(running: &[u32], tokens: u32) -> Vec<u32> {
        let running: Vec<Candidate> = running.iter().map(|&pending| Candidate { pending }).collect();
        schedule(&running, tokens)
    }

    #[test]
    fn decoding_sequences_come_before_prompts() {
        assert_eq!(plan(&[100, 1, 1, 1, 50], 8), [4, 1, 1, 1, 1]);
        assert_eq!(plan(&[1, 1, 50], 2), [1, 1, 0]);
    }

    #[test]
    fn a_short_prompt_does_not_wait_for_a_long_one() {
        assert_eq!(plan(&[1000, 3, 1000], 8), [6, 2, 0]);
        assert_eq!(plan(&[994, 1, 1000], 8), [6, 1, 1]);
    }

    #[test]
    fn the_oldest_prompt_takes_what_others_leave() {
        assert_eq!(plan(&[1000], 8), [8]);
        assert_eq!(plan(&[5, 1000], 8), [5, 3]);
    }

    /// A sequence of the simulation: tokens not yet fed, and tokens still to be generated after them.
    #[derive(Debug, Clone)]
    struct Life {
        pending: u32,
        to_generate: u32,
        admitted_at: Option<u32>,
        idle: u32,
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        /// Runs queues to their end: every token is fed exactly once, the budget holds, nobody waits for ever.
        #[test]
        fn every_token_is_fed_once_within_the_budget(
            arrivals in prop::collection::vec((1..60u32, 0..20u32, 0..6u32), 1..12),
            slots in 1..5usize,
            extra in 0..20u32,
        ) {
            let tokens = slots as u32 + extra;
            let total: u32 = arrivals.iter().map(|&(prompt, generate, _)| prompt + generate).sum();
            let mut pause = 0;
            let mut arriving = arrivals.into_iter().map(|(prompt, generate, delay)| {
                pause += delay;
                (pause, Life { pending: prompt, to_generate: generate, admitted_at: None, idle: 0 })
            }).peekable();
            let (mut waiting, mut running): (Vec<Life>, Vec<Life>) = Default::default();
            let mut fed = 0;
            for step in 0u32.. {
                while let Some((_, life)) = arriving.next_if(|(at, _)| *at <= step) {
                    waiting.push(life);
                }
                if waiting.is_empty() && running.is_empty() {
                    if arriving.peek().is_none() { break }
                    continue;
                }
                while running.len() < slots && !waiting.is_empty() {
                    running.push(waiting.remove(0));
                }
                let candidates: Vec<Candidate> =
                    running.iter().map(|life| Candidate { pending: life.pending }).collect();
                let plan = schedule(&candidates, tokens);
                let given: u32 = plan.iter().sum();
                let known: u32 = running.iter().map(|life| life.pending).sum();
                prop_assert_eq!(given, tokens.min(known), "{:?}", plan);
                fed += given;
                for (life, &given) in running.iter_mut().zip(&plan) {
                    life.admitted_at.get_or_insert(step);
                    prop_assert!(given <= life.pending);
                    prop_assert!(life.pending != 1 || given == 1, "a decoding sequence waits");
                    life.idle = if given == 0 { life.idle + 1 } else { 0 };
                    prop_assert!(life.idle <= total, "starved");
                    life.pending -= given;
                    if life.pending == 0 && life.to_generate > 0 {
                        life.to_generate -= 1;
                        life.pending = 1;
                    }
                }
                let oldest_first = running.iter().map(|life| life.admitted_at);
                prop_assert!(oldest_first.is_sorted());
                running.retain(|life| life.pending > 0);
                prop_assert!(step < 10 * total + 100, "never ends");
            }
            prop_assert_eq!(fed, total);
        }
    }
}
