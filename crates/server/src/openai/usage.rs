//! Counts of tokens and times, as responses carry them.

use minfer::{Timings, Usage};
use serde_json::{Value as Json, json};

use crate::generate::output::{Finish, FinishReason};

/// Adds up the answers of one request. A prompt that several answers share counts once.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    prompt: u64,
    completion: u64,
    cached: u64,
    guessed: u64,
    right_guesses: u64,
    timings: Option<Json>,
}

impl Totals {
    /// Adds answer `choice` of `n` to the same prompt.
    pub(super) fn add(&mut self, choice: u32, n: u32, finish: &Finish) {
        self.completion += u64::from(finish.usage.completion);
        self.guessed += u64::from(finish.timings.guessed);
        self.right_guesses += u64::from(finish.timings.right_guesses);
        if choice.is_multiple_of(n) {
            self.prompt += u64::from(finish.usage.prompt);
            self.cached += u64::from(finish.usage.reused);
        }
        if choice == 0 {
            self.timings = Some(timings(finish.usage, finish.timings));
        }
    }

    pub(super) fn to_json(&self) -> Json {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
            "completion_tokens_details": {
                "accepted_prediction_tokens": self.right_guesses,
                "rejected_prediction_tokens": self.guessed - self.right_guesses,
            },
        })
    }

    /// Times of the first answer.
    pub(super) fn timings(&self) -> Json {
        self.timings.clone().unwrap_or_default()
    }
}

/// Times of one answer. A speed that was not measured is null.
pub(crate) fn timings(usage: Usage, timings: Timings) -> Json {
    let fed = usage.prompt - usage.cached.min(usage.prompt);
    let speed = |tokens: u32, ms: f64| (tokens > 0 && ms > 0.0).then(|| f64::from(tokens) * 1e3 / ms);
    json!({
        "cache_n": usage.cached,
        "prompt_n": fed,
        "prompt_ms": timings.prompt_ms(),
        "prompt_per_second": speed(fed, timings.prompt_ms()),
        "predicted_n": usage.completion,
        "predicted_ms": timings.predicted_ms(),
        "predicted_per_second": speed(usage.completion.saturating_sub(1), timings.predicted_ms()),
    })
}

/// The reason as OpenAI's API names it.
pub(super) fn reason(reason: &FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop | FinishReason::StopString(_) => "stop",
        FinishReason::Length => "length",
        FinishReason::ToolCalls => "tool_calls",
    }
}
