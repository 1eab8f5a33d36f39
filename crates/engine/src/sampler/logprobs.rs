//! Log-probabilities of the model's own distribution, before any stage of sampling.
//!
//! The same logits give the same bits on every machine: exponentials are summed in f64 in 16 lanes
//! that one fixed tree combines.

use super::SampleError;
use super::candidates::{Candidates, Scratch, checked_highest};
use super::exp::{LANES, exp};

/// What masked tokens have, so that every value can be written as JSON.
pub const FLOOR: f32 = -9999.0;

/// A token with its log-probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenLogprob {
    /// The token.
    pub id: u32,
    /// Natural logarithm of its probability; finite.
    pub logprob: f32,
}

/// What is reported about a generated token.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprobs {
    /// Natural logarithm of the token's probability; finite.
    pub logprob: f32,
    /// The most probable tokens, best first, ties by lower id.
    pub top: Vec<TokenLogprob>,
}

/// The normaliser of one row of logits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogSoftmax {
    highest: f32,
    log_sum: f64,
}

impl LogSoftmax {
    /// Sums the exponentials of a row.
    ///
    /// # Errors
    /// A logit that is no number, or all masked.
    pub fn of(logits: &[f32]) -> Result<LogSoftmax, SampleError> {
        let highest = checked_highest(logits)?;
        if highest == f32::NEG_INFINITY {
            return Err(SampleError::AllMasked);
        }
        let (chunks, rest) = logits.as_chunks::<LANES>();
        let mut lanes = [0f64; LANES];
        for chunk in chunks {
            let terms = chunk.map(|logit| exp(logit - highest));
            for (lane, term) in lanes.iter_mut().zip(terms) {
                *lane += f64::from(term);
            }
        }
        for (lane, &logit) in lanes.iter_mut().zip(rest) {
            *lane += f64::from(exp(logit - highest));
        }
        let mut width = LANES / 2;
        while width > 0 {
            for lane in 0..width {
                lanes[lane] += lanes[lane + width];
            }
            width /= 2;
        }
        Ok(LogSoftmax { highest, log_sum: libm::log(lanes[0]) })
    }

    /// The log-probability of a token with this logit.
    pub fn logprob(&self, logit: f32) -> f32 {
        let logprob = (f64::from(logit) - f64::from(self.highest) - self.log_sum) as f32;
        logprob.max(FLOOR)
    }

    /// The `count` most probable tokens of the row, best first, ties by lower id; fewer when others
    /// are masked.
    pub fn top(&self, scratch: &mut Scratch, logits: &[f32], count: usize) -> Vec<TokenLogprob> {
        if count == 0 {
            return Vec::new();
        }
        let Ok(mut candidates) = Candidates::new(scratch, logits) else { return Vec::new() };
        candidates.keep_best(count);
        let mut top = Vec::with_capacity(count);
        candidates.for_each(|candidate| {
            top.push(TokenLogprob { id: candidate.id, logprob: self.logprob(candidate.logit) });
        });
        top
    }

    /// What is reported about the chosen token `id`.
    pub fn of_token(&self, scratch: &mut Scratch, logits: &[f32], id: u32, count: usize) -> TokenLogprobs {
        let top = self.top(scratch, logits, count);
        TokenLogprobs { logprob: self.logprob(logits[id as usize]), top }
    }
}
