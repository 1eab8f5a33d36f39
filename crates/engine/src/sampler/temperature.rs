//! Temperature: divides the logits, which makes the distribution flatter or sharper.

use super::candidates::Candidates;

/// Divides the logits by `temperature`, which is above 0. If the highest logit would overflow, the
/// distances to it are divided instead.
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
