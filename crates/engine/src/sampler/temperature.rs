//! Flatter or sharper distributions.

use super::candidates::Candidates;

/// Divides the distances to the best logit, so that no quotient overflows; `temperature` is above 0.
pub(super) fn apply(candidates: &mut Candidates<'_>, temperature: f32) {
    let highest = candidates.highest();
    if temperature != 1.0 && highest > f32::NEG_INFINITY {
        candidates.change_all(|logit| (logit - highest) / temperature);
    }
}
