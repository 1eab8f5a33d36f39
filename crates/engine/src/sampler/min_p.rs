//! Tokens not much less probable than the best one (Nguyen et al., "Turning Up the Heat: Min-p Sampling", 2024).

use super::candidates::Candidates;

pub(super) fn apply(candidates: &mut Candidates<'_>, min_p: f32) {
    if min_p <= 0.0 {
        return;
    }
    let highest = f64::from(candidates.highest());
    let margin = libm::log(f64::from(min_p));
    candidates.retain(|candidate| f64::from(candidate.logit) - highest >= margin);
}
