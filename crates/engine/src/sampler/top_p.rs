//! The most probable tokens that together reach a probability: nucleus sampling (Holtzman et al., "The Curious Case of
//! Neural Text Degeneration", 2019).

use super::candidates::{Candidate, Candidates};

/// Buckets of logits below the best one: finer than a token is likely to share with many others, few enough to sum.
const BUCKETS: usize = 1024;
/// Buckets for each unit of logit.
const PER_UNIT: f32 = 32.0;

pub(super) fn apply(candidates: &mut Candidates<'_>, top_p: f32) {
    let highest = candidates.highest();
    if top_p >= 1.0 || highest == f32::NEG_INFINITY {
        return;
    }
    let last = last_of_nucleus(candidates, top_p, highest);
    candidates.retain(|candidate| candidate.order(&last).is_le());
}

/// The least probable token of the smallest set of best ones whose mass reaches `top_p`; at least the best token.
///
/// Sums masses by bucket of logit first, so that only one bucket needs to be put in order.
fn last_of_nucleus(candidates: &mut Candidates<'_>, top_p: f32, highest: f32) -> Candidate {
    let masses = candidates.masses(highest);
    let mut buckets = vec![0u64; BUCKETS];
    let mut index = 0;
    candidates.for_each(|candidate| {
        buckets[bucket(candidate.logit, highest)] += masses[index];
        index += 1;
    });
    let total: u64 = buckets.iter().sum();
    let wanted = ((f64::from(top_p) * total as f64).ceil() as u64).clamp(1, total);
    let mut before = 0;
    let crossing = buckets.iter().position(|&mass| {
        let reaches = before + mass >= wanted;
        before += if reaches { 0 } else { mass };
        reaches
    });
    let crossing = crossing.expect("all buckets together reach what is wanted");
    let mut members: Vec<(Candidate, u64)> = Vec::new();
    let mut index = 0;
    candidates.for_each(|candidate| {
        if bucket(candidate.logit, highest) == crossing {
            members.push((candidate, masses[index]));
        }
        index += 1;
    });
    candidates.scratch.masses = masses;
    members.sort_unstable_by(|a, b| a.0.order(&b.0));
    let last = members.iter().position(|(_, mass)| {
        before += mass;
        before >= wanted
    });
    members[last.expect("the bucket reaches what is wanted")].0
}

/// The bucket of a logit; a lower logit is never in an earlier one.
fn bucket(logit: f32, highest: f32) -> usize {
    (((highest - logit) * PER_UNIT) as usize).min(BUCKETS - 1)
}
