//! Repetition, presence and frequency penalties over the last `repeat_last_n` tokens.
//!
//! The repetition penalty is that of Keskar et al., "CTRL: A Conditional Transformer Language Model"
//! (2019), with negative logits multiplied; presence and frequency penalties are those of the
//! OpenAI API, over the same window.

use super::candidates::Candidates;
use super::params::SamplingParams;

pub(super) fn apply(candidates: &mut Candidates<'_>, params: &SamplingParams, history: &[u32]) {
    let off =
        params.repeat_penalty == 1.0 && params.presence_penalty == 0.0 && params.frequency_penalty == 0.0;
    let window = usize::try_from(params.repeat_last_n).unwrap_or(usize::MAX).min(history.len());
    if off || window == 0 {
        return;
    }
    let counts = count(&history[history.len() - window..], std::mem::take(&mut candidates.scratch.counts));
    for &(id, count) in &counts {
        candidates.change(id, |logit| {
            let repeated =
                if logit > 0.0 { logit / params.repeat_penalty } else { logit * params.repeat_penalty };
            let said = params.presence_penalty + params.frequency_penalty * count as f32;
            finite(repeated) - finite(said)
        });
    }
    candidates.scratch.counts = counts;
}

/// The nearest finite number, so that differences are numbers.
fn finite(value: f32) -> f32 {
    value.clamp(f32::MIN, f32::MAX)
}

/// Each token of the window with how often it occurs.
fn count(window: &[u32], mut counts: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    counts.clear();
    counts.extend(window.iter().map(|&id| (id, 1)));
    counts.sort_unstable();
    counts.dedup_by(|later, first| {
        let same = later.0 == first.0;
        first.1 += u32::from(same);
        same
    });
    counts
}
