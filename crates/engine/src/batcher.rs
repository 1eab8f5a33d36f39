//! Which tokens go into the next step: a pure function of the queue's state and a budget.
//!
//! Running sequences come first with their next token each, then pieces of prompts in order of arrival.

/// A sequence that takes part or wants to.
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

/// What the next step feeds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Schedule {
    /// Waiting sequences to admit, from the front of the queue; they run behind those that run already.
    pub(crate) admitted: usize,
    /// Tokens of each running sequence, then of each admitted one; 0 for those that have to wait for a step.
    pub(crate) tokens: Vec<u32>,
}

/// The prompts behind the oldest one share at least one token in this many.
const SHARE_BEHIND_THE_OLDEST: u32 = 4;

/// Divides the budget. `running` and `waiting` are in order of arrival; every one of `waiting` has room in the cache.
///
/// A sequence with one pending token gets it before any prompt. Of the rest the oldest prompt gets all but a quarter,
/// which prompts behind it use in order, so that a short prompt does not wait for the end of a long one; what they leave
/// goes back to the oldest.
pub(crate) fn schedule(running: &[Candidate], waiting: &[Candidate], limits: Limits) -> Schedule {
    let admitted = waiting.len().min(limits.slots.saturating_sub(running.len()));
    let candidates: Vec<Candidate> = running.iter().chain(&waiting[..admitted]).copied().collect();
    let mut tokens = vec![0; candidates.len()];
    let mut budget = limits.tokens;
    for (given, candidate) in tokens.iter_mut().zip(&candidates) {
        if candidate.pending == 1 && budget > 0 {
            *given = 1;
            budget -= 1;
        }
    }
    let mut prompts: Vec<usize> =
        (0..candidates.len()).filter(|&index| tokens[index] < candidates[index].pending).collect();
    let reserve = if prompts.len() > 1 { budget / SHARE_BEHIND_THE_OLDEST } else { 0 };
    if let Some(&oldest) = prompts.first() {
        let most = budget - reserve;
        budget -= give(&mut tokens[oldest], candidates[oldest], most);
    }
    let oldest = usize::from(!prompts.is_empty());
    prompts.rotate_left(oldest);
    for index in prompts {
        let most = budget;
        budget -= give(&mut tokens[index], candidates[index], most);
    }
    let admitted = trim_unfed(&mut tokens, running.len());
    Schedule { admitted, tokens }
}

fn give(given: &mut u32, candidate: Candidate, most: u32) -> u32 {
    let more = (candidate.pending - *given).min(most);
    *given += more;
    more
}

/// Leaves in the queue what would be admitted without being fed, and tells how many are admitted.
fn trim_unfed(tokens: &mut Vec<u32>, running: usize) -> usize {
    let fed = tokens.iter().rposition(|&given| given > 0).map_or(0, |last| last + 1);
    tokens.truncate(fed.max(running));
    tokens.len() - running
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan(running: &[u32], waiting: &[u32], tokens: u32, slots: usize) -> (usize, Vec<u32>) {
        let candidates = |pending: &[u32]| -> Vec<Candidate> {
            pending.iter().map(|&pending| Candidate { pending }).collect()
        };
        let schedule = schedule(&candidates(running), &candidates(waiting), Limits { tokens, slots });
        (schedule.admitted, schedule.tokens)
    }

    #[test]
    fn decoding_sequences_come_before_prompts() {
        assert_eq!(plan(&[100, 1, 1], &[1, 50], 8, 8), (2, vec![4, 1, 1, 1, 1]));
        assert_eq!(plan(&[1, 1], &[50], 2, 8), (0, vec![1, 1]));
    }

    #[test]
    fn a_short_prompt_does_not_wait_for_a_long_one() {
        assert_eq!(plan(&[], &[1000, 3, 1000], 8, 8), (2, vec![6, 2]));
        assert_eq!(plan(&[994, 1], &[1000], 8, 8), (1, vec![6, 1, 1]));
    }

    #[test]
    fn the_oldest_prompt_takes_what_others_leave() {
        assert_eq!(plan(&[], &[1000], 8, 8), (1, vec![8]));
        assert_eq!(plan(&[], &[5, 1000], 8, 8), (2, vec![5, 3]));
    }

    #[test]
    fn slots_bound_the_running() {
        assert_eq!(plan(&[1, 1], &[1, 1, 1], 8, 3), (1, vec![1, 1, 1]));
        assert_eq!(plan(&[1, 1], &[1], 8, 1), (0, vec![1, 1]));
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
                let candidates = |lives: &[Life]| -> Vec<Candidate> {
                    lives.iter().map(|life| Candidate { pending: life.pending }).collect()
                };
                let plan = schedule(&candidates(&running), &candidates(&waiting), Limits { tokens, slots });
                let given: u32 = plan.tokens.iter().sum();
                let known: u32 = running.iter().chain(&waiting).map(|life| life.pending).sum();
                prop_assert!(given >= 1 && given <= tokens, "{plan:?}");
                prop_assert!(
                    given == tokens.min(known) || running.len() + plan.admitted == slots || given == tokens
                );
                running.extend(waiting.drain(..plan.admitted));
                prop_assert!(running.len() <= slots && plan.tokens.len() == running.len());
                fed += given;
                for (life, &given) in running.iter_mut().zip(&plan.tokens) {
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
