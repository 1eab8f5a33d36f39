//! Guessed tokens in a step: which sequences feed some, and which of them were right.

use super::Worker;
use crate::drafter::worthwhile;

/// Rows of a step with guesses at most.
const MOST_ROWS: usize = 16;

impl Worker {
    /// Chooses guesses for the sequences of a step in which nothing is prefilled, as many as make
    /// it faster.
    pub(super) fn guess(&mut self) {
        self.running.iter_mut().for_each(|sequence| sequence.forget_guesses());
        let Some(drafter) = &self.drafter else { return };
        let sequences = self.running.len();
        let most_rows = MOST_ROWS.min(self.limits.tokens as usize);
        if sequences == 0
            || self.running.iter().any(|sequence| sequence.pending() != 1)
            || !self.waiting.is_empty()
            || self.pace.decode_micros(sequences).is_none()
        {
            return;
        }
        let (mut rows, mut tokens) = (sequences, sequences as f64);
        let most_positions = self.most_rows();
        for sequence in &mut self.running {
            let room = most_rows.saturating_sub(rows);
            let Some(draft) = sequence.guess(drafter, room, most_positions) else { continue };
            let probability = sequence.acceptance.probability(draft.confidence);
            // The step of one sequence is known, so that of more rows has an estimate.
            let micros = |rows: usize| self.pace.decode_micros(rows).unwrap_or(f64::INFINITY);
            match worthwhile(draft.tokens.len(), rows, tokens, probability, micros) {
                0 => sequence.acceptance.skip(draft.confidence),
                count => {
                    rows += count;
                    tokens += (1..=count as i32).map(|power| probability.powi(power)).sum::<f64>();
                    sequence.take_guesses(draft, count);
                }
            }
        }
    }

    /// Takes cells for a sequence's next token and the guessed ones, if that disturbs nobody.
    /// Returns how many tokens.
    pub(super) fn prepare_guesses(&mut self, index: usize) -> Option<u32> {
        let sequence = &self.running[index];
        let fed = sequence.tokens_with_guesses()?;
        if self.store.prepare(self.model.arena(), sequence.kv(), fed).is_err() {
            self.running[index].forget_guesses();
            return None;
        }
        Some(fed.len() as u32)
    }
}
