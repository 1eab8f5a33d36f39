//! Top-k: keeps the `k` most probable tokens.

use super::candidates::Candidates;

pub(super) fn apply(candidates: &mut Candidates<'_>, top_k: u32) {
    if top_k > 0 {
        candidates.keep_best(top_k as usize);
    }
}
