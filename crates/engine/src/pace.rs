//! What steps cost, as measured, and from that how much of a prompt a step may take while rows
//! decode.
//!
//! Two things are measured: the time of steps that only decode, by their number of rows, and the
//! time that a token of a prompt adds to a step, by the token's depth, since attention makes deeper
//! tokens dearer. Each is the median of its last few values, so that one step that the system held
//! up changes nothing. There is no clock here: the caller says how long a step took.

use std::time::Duration;

use crate::batcher::{Budget, TimeBudget};

/// Values of which the median counts.
const KEPT: usize = 5;
/// Positions that share one estimate of a token's cost.
const DEPTH: u32 = 512;
/// Decode-only steps that are wanted before their time counts as known.
const FIRST_PROBES: u32 = 3;
/// Steps with prefill chunks after which the decode-only step is measured again.
const STEPS_BETWEEN_PROBES: u32 = 64;
/// Least share of a step's time that counts as that of its chunks. It bounds how much the next
/// chunk can grow where the decode-only step was measured too long.
const LEAST_SHARE: f64 = 0.25;
/// Tokens of the first chunk, while no token of a prompt has been measured.
const FIRST_CHUNK: f64 = 4.0;

/// A decode-only step of one row more than any that was measured costs this share more.
const A_ROW_MORE: f64 = 0.1;

/// Estimates of one engine.
#[derive(Debug)]
pub(crate) struct Pace {
    /// A step with prefill chunks takes this many times a decode-only step; 0 bounds no step by
    /// time.
    target: f64,
    /// Decode-only steps of 1, 2, ... rows.
    decode: Vec<DecodeStep>,
    /// Tokens of chunks beside decoding rows.
    beside: ByDepth,
    /// Tokens of chunks in steps without decoding rows.
    alone: ByDepth,
    /// Steps with chunks beside decoding rows since the last decode-only step.
    since_decode_only: u32,
}

/// What the time of a step depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StepShape {
    /// Rows that are fed to choose the next tokens, guessed ones too.
    pub(crate) decoding: usize,
    /// Tokens in the cache before each chunk of a prompt, and tokens of the chunk.
    pub(crate) chunks: Vec<(u32, u32)>,
}

#[derive(Debug, Clone, Default)]
struct DecodeStep {
    micros: Median,
    /// Times that one was measured.
    measured: u32,
}

impl Pace {
    pub(crate) fn new(target: f32, n_slots: usize) -> Pace {
        Pace {
            target: f64::from(target),
            decode: vec![DecodeStep::default(); n_slots],
            beside: ByDepth::default(),
            alone: ByDepth::default(),
            since_decode_only: 0,
        }
    }

    /// The time of a decode-only step of so many rows: measured, or between those that were, or
    /// beyond them as if a row more cost a tenth. `None` where none of fewer rows was measured.
    pub(crate) fn decode_micros(&self, rows: usize) -> Option<f64> {
        let known = |step: &DecodeStep| step.micros.get();
        let at = rows.min(self.decode.len());
        if let Some(micros) = self.decode.get(rows - 1).and_then(known) {
            return Some(micros);
        }
        let less =
            self.decode[..at].iter().enumerate().rev().find_map(|(at, step)| Some((at + 1, known(step)?)))?;
        let more =
            self.decode[at..].iter().enumerate().find_map(|(more, step)| Some((at + more + 1, known(step)?)));
        let (fewer, micros) = less;
        let beyond = (rows - fewer) as f64;
        Some(match more {
            Some((more, dearer)) => micros + (dearer - micros) * beyond / (more - fewer) as f64,
            None => micros * (1.0 + beyond * A_ROW_MORE),
        })
    }

    /// What the prefill chunks in the next step may take beside `decoding` rows.
    pub(crate) fn budget(&self, decoding: usize) -> Budget<'_> {
        let Some(step) = self.decode.get(decoding.wrapping_sub(1)).filter(|_| self.target > 0.0) else {
            return Budget::Unbounded;
        };
        let Some(micros) = step.micros.get() else { return Budget::DecodeOnly };
        let due = if step.measured < FIRST_PROBES { 1 } else { STEPS_BETWEEN_PROBES };
        if self.since_decode_only >= due {
            return Budget::DecodeOnly;
        }
        let micros = micros * (self.target - 1.0);
        Budget::Time(TimeBudget {
            micros,
            token_micros: Box::new(move |depth| self.token_micros(depth, micros)),
        })
    }

    /// What a token at this depth adds to a step.
    fn token_micros(&self, depth: u32, budget: f64) -> f64 {
        let measured = self.beside.get(depth).or_else(|| self.alone.get(depth));
        measured.unwrap_or(budget / FIRST_CHUNK)
    }

    /// A step took so long.
    pub(crate) fn record(&mut self, step: &StepShape, took: Duration) {
        let micros = took.as_secs_f64() * 1e6;
        let tokens: u32 = step.chunks.iter().map(|&(_, tokens)| tokens).sum();
        match (step.decoding, tokens) {
            (0, 0) => {}
            (0, _) => share_out(&mut self.alone, &step.chunks, micros),
            (rows, 0) => {
                self.since_decode_only = 0;
                if self.decode.len() < rows {
                    self.decode.resize(rows, DecodeStep::default());
                }
                let step = &mut self.decode[rows - 1];
                step.micros.add(micros);
                step.measured = step.measured.saturating_add(1);
            }
            (rows, _) => {
                self.since_decode_only += 1;
                let decode = self.decode.get(rows - 1).and_then(|step| step.micros.get());
                let Some(decode) = decode else { return };
                share_out(&mut self.beside, &step.chunks, (micros - decode).max(micros * LEAST_SHARE));
            }
        }
    }
}

/// Divides a step's time among the tokens of its chunks, in proportion to what was known of their
/// depths.
fn share_out(known: &mut ByDepth, chunks: &[(u32, u32)], micros: f64) {
    let cost = |&(depth, tokens): &(u32, u32)| known.get(middle(depth, tokens)).unwrap_or(1.0);
    let expected: f64 = chunks.iter().map(|chunk| cost(chunk) * f64::from(chunk.1)).sum();
    if expected > 0.0 {
        let costs: Vec<f64> = chunks.iter().map(|chunk| cost(chunk) * micros / expected).collect();
        chunks.iter().zip(costs).for_each(|(&(depth, tokens), cost)| known.add(middle(depth, tokens), cost));
    }
}

fn middle(depth: u32, tokens: u32) -> u32 {
    depth + tokens / 2
}

/// Costs of a token by its depth.
#[derive(Debug, Default)]
struct ByDepth(Vec<Median>);

impl ByDepth {
    fn add(&mut self, depth: u32, value: f64) {
        let index = (depth / DEPTH) as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, Median::default());
        }
        self.0[index].add(value);
    }

    /// The estimate for this depth, or that of the nearest depth that has one, the shallower ones
    /// first.
    fn get(&self, depth: u32) -> Option<f64> {
        let index = (depth / DEPTH) as usize;
        let (shallower, deeper) = self.0.split_at(self.0.len().min(index + 1));
        shallower.iter().rev().chain(deeper).find_map(Median::get)
    }
}

/// The median of the last few values.
#[derive(Debug, Clone, Copy, Default)]
struct Median {
    values: [f64; KEPT],
    added: usize,
}

impl Median {
    fn add(&mut self, value: f64) {
        self.values[self.added % KEPT] = value;
        self.added += 1;
    }

    /// The lower of the two middle ones where there is an even number.
    fn get(&self) -> Option<f64> {
        let count = self.added.min(KEPT);
        let mut values = self.values;
        let values = &mut values[..count];
        values.sort_unstable_by(f64::total_cmp);
        count.checked_sub(1).map(|last| values[last / 2])
    }
}

#[cfg(test)]
mod tests;
