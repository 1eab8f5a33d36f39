//! What several tests of the facade share.

use minfer::Loaded;
use minfer::engine::{RunnerOptions, Want};

/// Bits of the logits at every position of a few tokens.
pub(crate) fn logits_of(loaded: Loaded) -> Vec<u32> {
    let mut runner = loaded.into_runner(RunnerOptions::default());
    let sequence = runner.open();
    let mut bits = Vec::new();
    let tokens = [3, 1, 4, 1, 5, 9, 2, 6];
    let mut keep = |logits: &[f32]| bits.extend(logits.iter().map(|logit| logit.to_bits()));
    runner.feed(&[(sequence, &tokens)], Want::All, |row| keep(row.logits)).expect("the model runs");
    bits
}
