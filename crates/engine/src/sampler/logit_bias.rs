//! A bias for chosen tokens, before anything else.

use super::candidates::Candidates;

pub(super) fn apply(candidates: &mut Candidates<'_>, bias: &[(u32, f32)]) {
    for &(id, bias) in bias {
        candidates.change(id, |logit| logit + bias);
    }
}
