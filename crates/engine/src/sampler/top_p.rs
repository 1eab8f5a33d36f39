//! Top-p or nucleus sampling: keeps the most probable tokens that together reach a probability
//! (Holtzman et al., "The Curious Case of Neural Text Degeneration", 2019).

use super::candidates::{Candidate, Candidates};
use super::exp::LANES;
use super::mass::{BLOCK, UNIT, any_from, fill, mass, rounded};

/// Buckets of logits below the best one: finer than a token is likely to share with many others,
/// few enough to sum.
const BUCKETS: usize = 1024;
/// Buckets for each unit of logit.
const PER_UNIT: f32 = 32.0;
/// More than a logit and its mass are off from the exact logarithm.
const SLACK: f32 = 0.01;

/// Keeps the smallest set of best candidates whose mass reaches `top_p` of all; at least the best
/// one.
pub(super) fn apply(candidates: &mut Candidates<'_>, top_p: f32) {
    let highest = candidates.highest();
    if top_p >= 1.0 || highest == f32::NEG_INFINITY {
        return;
    }
    let last = match candidates.dense() {
        Some(logits) => last_of_all(logits, top_p, highest),
        None => last_of_list(candidates, top_p, highest),
    };
    candidates.cut(last);
}

/// The last token of the nucleus of a whole vocabulary. Sums masses by bucket of logit first, so
/// that only one bucket needs to be put in order.
///
/// Most tokens of a vocabulary are too improbable to be in the nucleus, and are not looked at one
/// by one: those with masses below half of `(1 - top_p) * total / tokens` add up to less than half
/// of what the nucleus leaves out.
fn last_of_all(logits: &[f32], top_p: f32, highest: f32) -> Candidate {
    let left_out = (1.0 - f64::from(top_p)) * 0.5 / logits.len() as f64;
    let mut buckets = vec![0u64; BUCKETS];
    let (mut shares, mut masses, mut places) = ([0f32; BLOCK], [0u64; BLOCK], [0u32; BLOCK]);
    let mut total = 0;
    for block in logits.chunks(BLOCK) {
        let shares = &mut shares[..block.len()];
        total += fill(shares, block, f32::NEG_INFINITY, highest);
        let least = highest + libm::log(left_out * total as f64 / f64::from(UNIT)) as f32 - SLACK;
        if !any_from(block, least) {
            continue;
        }
        // One loop for each array: all but the last run on many lanes at once.
        masses.iter_mut().zip(&*shares).for_each(|(mass, &share)| *mass = rounded(share));
        places.iter_mut().zip(block).for_each(|(place, &logit)| *place = bucket(logit, highest));
        for (&place, &mass) in places.iter().zip(&masses).take(block.len()) {
            buckets[place as usize % BUCKETS] += mass;
        }
    }
    let wanted = wanted(top_p, total);
    let (crossing, before) = crossing(&buckets, wanted);
    let mut members: Vec<(Candidate, u64)> = Vec::new();
    for (index, chunk) in (0u32..).zip(logits.chunks(LANES)) {
        if chunk.iter().fold(false, |any, &logit| any | (bucket(logit, highest) == crossing)) {
            let candidates = (index * LANES as u32..).zip(chunk);
            let candidates = candidates.filter(|&(_, &logit)| bucket(logit, highest) == crossing);
            members.extend(candidates.map(|(id, &logit)| (Candidate { id, logit }, mass(logit, highest))));
        }
    }
    last_of_members(members, before, wanted)
}

/// The last token of the nucleus of a list.
fn last_of_list(candidates: &mut Candidates<'_>, top_p: f32, highest: f32) -> Candidate {
    let masses = candidates.list_masses(highest);
    let list = candidates.list().iter().zip(&masses);
    let mut buckets = vec![0u64; BUCKETS];
    list.clone().for_each(|(candidate, mass)| buckets[bucket(candidate.logit, highest) as usize] += mass);
    let wanted = wanted(top_p, masses.iter().sum());
    let (crossing, before) = crossing(&buckets, wanted);
    let members = list.filter(|(candidate, _)| bucket(candidate.logit, highest) == crossing);
    let last =
        last_of_members(members.map(|(&candidate, &mass)| (candidate, mass)).collect(), before, wanted);
    candidates.scratch.masses = masses;
    last
}

/// The mass that the nucleus has at least.
fn wanted(top_p: f32, total: u64) -> u64 {
    ((f64::from(top_p) * total as f64).ceil() as u64).clamp(1, total)
}

/// The bucket with which the sum reaches `wanted`, and the sum before it.
fn crossing(buckets: &[u64], wanted: u64) -> (u32, u64) {
    let mut before = 0;
    let crossing = buckets.iter().position(|&mass| {
        let reaches = before + mass >= wanted;
        before += if reaches { 0 } else { mass };
        reaches
    });
    (crossing.expect("all buckets together reach what is wanted") as u32, before)
}

/// The candidate with which the sum of the best ones' masses, after `before`, reaches `wanted`.
fn last_of_members(mut members: Vec<(Candidate, u64)>, mut before: u64, wanted: u64) -> Candidate {
    members.sort_unstable_by(|a, b| a.0.order(&b.0));
    let last = members.iter().position(|(_, mass)| {
        before += mass;
        before >= wanted
    });
    members[last.expect("the bucket reaches what is wanted")].0
}

/// The bucket of a logit; a lower logit is never in an earlier one.
#[inline]
fn bucket(logit: f32, highest: f32) -> u32 {
    /// Added to a smaller number it leaves that number, rounded, in the low bits.
    const ROUND: f32 = (1u32 << 23) as f32;
    let place = (highest - logit) * PER_UNIT;
    let place = if place < (BUCKETS - 1) as f32 { place } else { (BUCKETS - 1) as f32 };
    (place + ROUND).to_bits() - ROUND.to_bits()
}
