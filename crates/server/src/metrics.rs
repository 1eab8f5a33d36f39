//! Metrics in Prometheus' format.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use minfer::engine::{EngineStats, StepReport};
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum OutcomeName {
    Stop,
    Length,
    ToolCalls,
    Error,
    Cancelled,
    Refused,
}

impl EncodeLabelValue for OutcomeName {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> std::fmt::Result {
        let name = match self {
            OutcomeName::Stop => "stop",
            OutcomeName::Length => "length",
            OutcomeName::ToolCalls => "tool_calls",
            OutcomeName::Error => "error",
            OutcomeName::Cancelled => "cancelled",
            OutcomeName::Refused => "refused",
        };
        EncodeLabelValue::encode(&name, encoder)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: OutcomeName,
}

/// What the server counts itself. The engine's counts are read when they are asked for.
pub(crate) struct Metrics {
    requests: Family<Outcome, Counter>,
    prompt_tokens: Counter,
    generated_tokens: Counter,
    cached_tokens: Counter,
    first_token_seconds: Histogram,
    inter_token_seconds: Histogram,
    step_seconds: Histogram,
    step_part_seconds: Family<Part, Counter<f64, AtomicU64>>,
    batch_tokens: Histogram,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Part {
    part: &'static str,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let times =
            [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0];
        Metrics {
            requests: Family::default(),
            prompt_tokens: Counter::default(),
            generated_tokens: Counter::default(),
            cached_tokens: Counter::default(),
            first_token_seconds: Histogram::new(times),
            inter_token_seconds: Histogram::new(times),
            step_seconds: Histogram::new(times),
            step_part_seconds: Family::default(),
            batch_tokens: Histogram::new([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048].map(f64::from)),
        }
    }
}

impl Metrics {
    /// One answer, or one refused request, has ended.
    pub(crate) fn ended(&self, outcome: OutcomeName) {
        self.requests.get_or_create(&Outcome { outcome }).inc();
    }

    pub(crate) fn finished(&self, usage: minfer::Usage) {
        self.prompt_tokens.inc_by(u64::from(usage.prompt));
        self.generated_tokens.inc_by(u64::from(usage.completion));
        self.cached_tokens.inc_by(u64::from(usage.cached));
    }

    pub(crate) fn first_token(&self, time: Duration) {
        self.first_token_seconds.observe(time.as_secs_f64());
    }

    pub(crate) fn next_token(&self, time: Duration) {
        self.inter_token_seconds.observe(time.as_secs_f64());
    }

    /// A step of some engine.
    pub(crate) fn step(&self, report: &StepReport) {
        let StepReport { decode_rows, prefill_rows, schedule, body, head, sample, publish } = *report;
        self.step_seconds.observe(report.total().as_secs_f64());
        self.batch_tokens.observe(f64::from(decode_rows + prefill_rows));
        let parts = [
            ("schedule", schedule),
            ("body", body),
            ("head", head),
            ("sample", sample),
            ("publish", publish),
        ];
        for (part, time) in parts {
            self.step_part_seconds.get_or_create(&Part { part }).inc_by(time.as_secs_f64());
        }
    }

    /// All metrics as text.
    pub(crate) fn text(&self, engines: &[EngineStats]) -> String {
        let mut registry = Registry::with_prefix("minfer");
        let mut counter = |name, help, counter: &Counter| registry.register(name, help, counter.clone());
        counter("prompt_tokens", "Tokens of prompts", &self.prompt_tokens);
        counter("generated_tokens", "Generated tokens", &self.generated_tokens);
        counter("cached_tokens", "Tokens of prompts whose KV rows were cached", &self.cached_tokens);
        registry.register("requests", "Answers by outcome, and refused requests", self.requests.clone());
        let (first, next) = (self.first_token_seconds.clone(), self.inter_token_seconds.clone());
        registry.register("ttft_seconds", "Time from a request to its first token", first);
        registry.register("inter_token_seconds", "Time from one token of an answer to the next", next);
        registry.register("step_seconds", "Time of a step", self.step_seconds.clone());
        let parts = self.step_part_seconds.clone();
        registry.register("step_part_seconds", "Time of all steps by part", parts);
        registry.register("batch_tokens", "Tokens of a step", self.batch_tokens.clone());
        register_engines(&mut registry, engines);
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &registry);
        text
    }
}

/// Counts of all engines together.
fn register_engines(registry: &mut Registry, engines: &[EngineStats]) {
    let sum = |value: fn(&EngineStats) -> u64| engines.iter().map(value).sum::<u64>();
    let counters = [
        ("preemptions", "Sequences whose KV blocks an older one took", sum(|stats| stats.preemptions)),
        ("cancelled", "Requests that were cancelled or whose client was gone", sum(|stats| stats.cancelled)),
        ("failed", "Requests that failed", sum(|stats| stats.failed)),
        ("steps", "Forward passes", sum(|stats| stats.steps)),
        ("tokens_fed", "Tokens fed to the model", sum(|stats| stats.tokens_fed)),
        ("guessed_tokens", "Tokens that were guessed", sum(|stats| stats.guessed_tokens)),
        ("right_guesses", "Guessed tokens that were right", sum(|stats| stats.right_guesses)),
        (
            "worker_stalled",
            "Times that an engine stopped without progress",
            sum(|stats| u64::from(stats.stalled)),
        ),
    ];
    for (name, help, value) in counters {
        let counter = Counter::<u64, AtomicU64>::default();
        counter.inc_by(value);
        registry.register(name, help, counter);
    }
    let gauges = [
        ("models_loaded", "Models in memory", engines.len() as u64),
        ("queue_depth", "Requests that wait", sum(|stats| stats.waiting)),
        ("running", "Requests that run", sum(|stats| stats.running)),
        ("kv_blocks_live", "KV blocks in use", sum(|stats| stats.kv.blocks_live)),
        ("kv_blocks_cached", "KV blocks of the prefix cache", sum(|stats| stats.kv.blocks_cached)),
        ("kv_committed_bytes", "Bytes under KV blocks", sum(|stats| stats.kv_committed_bytes)),
        (
            "kv_limit_bytes",
            "Bytes that KV blocks may take",
            sum(|stats| stats.kv_limit_bytes.unwrap_or_default()),
        ),
    ];
    for (name, help, value) in gauges {
        let gauge = Gauge::<i64>::default();
        gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        registry.register(name, help, gauge);
    }
}
