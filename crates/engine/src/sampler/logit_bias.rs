//! Logit bias: added to the logits of given tokens before all stages.

use super::candidates::Candidates;

pub(super) fn apply(candidates: &mut Candidates<'_>, bias: &[(u32, f32)]) {
    for &(id, bias) in bias {
        candidates.change(id, |logit| logit + bias);
    }
}
