//! Which tokens go into the next step: a pure function of the running sequences, a budget of
//! tokens, and what tokens cost. It reads no clock.
//!
//! Sequences that decode come first with their next token each, then prefill chunks in order of
//! arrival. Beside decoding rows the chunks are bounded by time, so that a long prompt slows
//! running streams a little instead of stopping them.

/// A sequence that takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Tokens that are known but not yet in the cache; at least one.
    pub(crate) pending: u32,
    /// Tokens in the cache.
    pub(crate) cached: u32,
}

/// Bounds of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Tokens in the step.
    pub(crate) tokens: u32,
    /// Sequences that may run.
    pub(crate) slots: usize,
}

/// What prefill chunks may take of a step beside its tokens.
pub(crate) enum Budget<'a> {
    /// Any time.
    Unbounded,
    /// Nothing while rows decode: the step is measured.
    DecodeOnly,
    /// A bounded time.
    Time(TimeBudget<'a>),
}

/// A time for the chunks of a step.
pub(crate) struct TimeBudget<'a> {
    /// Microseconds for all chunks together.
    pub(crate) micros: f64,
    /// Microseconds that a token with so many tokens before it adds to a step.
    pub(crate) token_micros: Box<dyn Fn(u32) -> f64 + 'a>,
}

/// The prompts behind the oldest one share at least one token, and one microsecond, in this many.
const SHARE_BEHIND_THE_OLDEST: u32 = 4;

/// Divides a step's tokens: those of each running sequence, in order of arrival; 0 for one that has
/// to wait for a step.
///
/// A sequence with one pending token gets it before any prompt. Of the rest the oldest prompt gets
/// all but a quarter, which prompts behind it use in order, so that a short prompt does not wait
/// for the end of a long one; what they leave goes back to the oldest. The oldest prompt gets one
/// token at least, however dear.
pub(crate) fn schedule(running: &[Candidate], tokens: u32, budget: &Budget<'_>) -> Vec<u32> {
    let mut plan = Plan { given: vec![0; running.len()], running, tokens, budget, micros: f64::INFINITY };
    let prompts = plan.give_decoding();
    let decodes = prompts.len() < running.len();
    match budget {
        Budget::DecodeOnly if decodes => return plan.given,
        Budget::Time(time) => plan.micros = time.micros,
        Budget::DecodeOnly | Budget::Unbounded => {}
    }
    let Some((&oldest, others)) = prompts.split_first() else { return plan.given };
    let (reserve, kept) = match others {
        [] => (0, 0.0),
        _ => (plan.tokens / SHARE_BEHIND_THE_OLDEST, plan.micros / f64::from(SHARE_BEHIND_THE_OLDEST)),
    };
    // An unbounded time is never used up, so nothing of it needs to be kept.
    let kept = if kept.is_finite() { kept } else { 0.0 };
    plan.give(oldest, reserve, kept);
    if plan.given[oldest] == 0 {
        plan.give_one(oldest);
    }
    others.iter().for_each(|&index| plan.give(index, 0, 0.0));
    plan.give(oldest, 0, 0.0);
    plan.given
}

/// A plan in the making: what each sequence has been given, and what is left of the budget.
struct Plan<'a> {
    given: Vec<u32>,
    running: &'a [Candidate],
    tokens: u32,
    micros: f64,
    budget: &'a Budget<'a>,
}

impl Plan<'_> {
    /// Gives their token to the sequences that decode; returns the indices of the others.
    fn give_decoding(&mut self) -> Vec<usize> {
        let mut prompts = Vec::new();
        for (index, candidate) in self.running.iter().enumerate() {
            if candidate.pending > 1 {
                prompts.push(index);
            } else if self.tokens > 0 {
                self.given[index] = 1;
                self.tokens -= 1;
            }
        }
        prompts
    }

    /// Gives a prompt as many tokens as there is budget for, but for `reserve` tokens and `kept`
    /// microseconds.
    fn give(&mut self, index: usize, reserve: u32, kept: f64) {
        let left = self.running[index].pending - self.given[index];
        for _ in 0..left.min(self.tokens.saturating_sub(reserve)) {
            // The time is met to the nearest token, which matters where a step takes few.
            if self.cost(index) * 0.5 > self.micros - kept {
                return;
            }
            self.give_one(index);
        }
    }

    fn give_one(&mut self, index: usize) {
        if self.tokens > 0 {
            self.micros -= self.cost(index);
            self.given[index] += 1;
            self.tokens -= 1;
        }
    }

    /// Microseconds of the next token of a prompt.
    fn cost(&self, index: usize) -> f64 {
        match self.budget {
            Budget::Time(time) => (time.token_micros)(self.running[index].cached + self.given[index]),
            Budget::Unbounded | Budget::DecodeOnly => 0.0,
        }
    }
}

#[cfg(test)]
mod tests;
