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
