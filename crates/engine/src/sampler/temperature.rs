//! Flatter or sharper distributions.

use super::candidates::Candidates;

/// Divides the logits; where the best one would overflow, the distances to it instead. `temperature` is above 0.
pub(super) fn apply(candidates: &mut Candidates<'_>, temperature: f32) {
    let highest = candidates.highest();
    if temperature == 1.0 || highest == f32::NEG_INFINITY {
        return;
    }
    if (highest / temperature).is_finite() {
        candidates.change_all(|logit| logit / temperature);
    } else {
        candidates.change_all(|logit| (logit - highest) / temperature);
    }
}
