//! Probability masses as whole numbers, so that a sum is the same in every order, and sums of them
//! over a vocabulary.

use super::candidates::Candidate;
use super::exp::{LANES, exp};

/// Mass of the best candidate. Tokens less probable than the best by more than this factor have
/// none.
pub(super) const UNIT: f32 = (1u64 << 43) as f32;
/// Tokens whose masses are summed at once: few enough for the first-level cache.
pub(super) const BLOCK: usize = 1024;
/// Added to a smaller number it leaves that number, rounded, in the low bits.
const ROUND: f64 = (1u64 << 52) as f64;

/// A candidate's mass beside one of the highest logit.
#[inline]
pub(super) fn mass(logit: f32, highest: f32) -> u64 {
    rounded(share(logit, highest))
}

/// A candidate's mass before it is rounded.
#[inline]
fn share(logit: f32, highest: f32) -> f32 {
    exp(logit - highest) * UNIT
}

/// The mass of a share.
#[inline]
pub(super) fn rounded(share: f32) -> u64 {
    (f64::from(share) + ROUND).to_bits() & ((1 << 52) - 1)
}

/// Writes the shares of those of at most [`BLOCK`] logits that are at least `least`, 0 for the
/// others; returns the sum of their masses. Shares come first, then the sum: each loop then runs on
/// many lanes at once.
pub(super) fn fill(shares: &mut [f32], logits: &[f32], least: f32, highest: f32) -> u64 {
    for (slot, &logit) in shares.iter_mut().zip(logits) {
        let share = share(logit, highest);
        *slot = if logit >= least { share } else { 0.0 };
    }
    // The bits above the mass are the same in every term.
    let bits = |sum: u64, &share: &f32| sum.wrapping_add((f64::from(share) + ROUND).to_bits());
    shares.iter().fold(0, bits).wrapping_sub(ROUND.to_bits().wrapping_mul(shares.len() as u64))
}

/// Which tokens of a vocabulary are kept: those up to and with a last one, in the order of
/// candidates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cut(pub(super) Candidate);

impl Cut {
    /// Keeps every token that is not masked.
    pub(super) const NONE: Cut = Cut(Candidate { id: u32::MAX, logit: f32::MIN });

    /// Sum of the masses of the kept tokens among at most [`BLOCK`] logits, the first of which is
    /// that of token `first`.
    pub(super) fn mass(self, logits: &[f32], first: u32, highest: f32) -> u64 {
        let Cut(last) = self;
        // Tokens of equal logits are kept up to the last one's id.
        let split = (last.id as usize + 1).saturating_sub(first as usize).min(logits.len());
        let (up_to_last, behind) = logits.split_at(split);
        mass_from(up_to_last, last.logit, highest) + mass_from(behind, last.logit.next_up(), highest)
    }

    /// Calls `visit` with the kept ones among `logits`, the first of which is that of token
    /// `first`.
    pub(super) fn for_each(self, logits: &[f32], first: u32, mut visit: impl FnMut(Candidate)) {
        let Cut(last) = self;
        for (index, chunk) in (0u32..).zip(logits.chunks(LANES)) {
            if any_from(chunk, last.logit) {
                let candidates = (first + index * LANES as u32..).zip(chunk);
                let candidates = candidates.map(|(id, &logit)| Candidate { id, logit });
                candidates.filter(|candidate| candidate.order(&last).is_le()).for_each(&mut visit);
            }
        }
    }
}

/// Sum of the masses of those of at most [`BLOCK`] logits that are at least `least`.
fn mass_from(logits: &[f32], least: f32, highest: f32) -> u64 {
    if !any_from(logits, least) {
        return 0;
    }
    fill(&mut [0.0; BLOCK][..logits.len()], logits, least, highest)
}

/// Whether one of the logits is at least `least`.
#[inline]
pub(super) fn any_from(logits: &[f32], least: f32) -> bool {
    logits.iter().fold(false, |any, &logit| any | (logit >= least))
}
