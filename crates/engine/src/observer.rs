//! What a step did and how long its parts took, for who wants to measure.

use std::time::Duration;

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StepReport {
    /// Rows whose logits choose the next token of a generation.
    pub decode_rows: u32,
    /// Rows of prompts.
    pub prefill_rows: u32,
    /// Choosing tokens and cells.
    pub schedule: Duration,
    /// The layers.
    pub body: Duration,
    /// The logits.
    pub head: Duration,
    /// Waiting for masks, choosing tokens, log-probabilities.
    pub sample: Duration,
    /// Telling the clients, and the store.
    pub publish: Duration,
}

impl StepReport {
    /// The whole step.
    pub fn total(&self) -> Duration {
        self.schedule + self.body + self.head + self.sample + self.publish
    }
}

/// Hears of every step with rows, on the worker's thread. It must not block. One that panics hears
/// no more.
pub type StepObserver = Box<dyn FnMut(&StepReport) + Send>;
