//! Min-p: keeps tokens that are not much less probable than the best one (Nguyen et al., "Turning
//! Up the Heat: Min-p Sampling", 2024).

use super::candidates::{Candidate, Candidates};

/// Keeps the candidates whose probability is at least `min_p` times that of the best one.
pub(super) fn apply(candidates: &mut Candidates<'_>, min_p: f32) {
    let highest = candidates.highest();
    if min_p <= 0.0 || highest == f32::NEG_INFINITY {
        return;
    }
    candidates.cut(Candidate { id: u32::MAX, logit: least_logit(f64::from(highest), f64::from(min_p)) });
}

/// The least logit whose distance to the highest one is at most that of `min_p`, to the bit.
fn least_logit(highest: f64, min_p: f64) -> f32 {
    let margin = libm::log(min_p);
    let keeps = |logit: f32| f64::from(logit) - highest >= margin;
    let mut least = (highest + margin) as f32;
    while !keeps(least) {
        least = least.next_up();
    }
    while least > f32::MIN && keeps(least.next_down()) {
        least = least.next_down();
    }
    least
}
