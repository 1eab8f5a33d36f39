//! Where the time of a test goes, as a table that adds up to the test.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use minfer::cpu::profile::Profiler;
use serde_json::{Value, json};

/// Times of one run by kind of step, the longest first; then what is outside of steps. `took`: the
/// whole run. Shares are of all workers' time.
pub(super) fn rows(profiler: &Profiler, workers: usize, took: Duration) -> Value {
    let total = took.as_secs_f64() * workers as f64;
    let mut times: Vec<_> = profiler.take().into_iter().collect();
    times.sort_by_key(|(_, time)| std::cmp::Reverse(time.busy + time.waiting));
    let (mut rows, mut inside) = (Vec::new(), 0.0);
    for (kind, time) in times {
        let (busy, waiting) = (time.busy.as_secs_f64(), time.waiting.as_secs_f64());
        inside += busy + waiting;
        rows.push(json!({
            "step": kind,
            "count": time.steps,
            "us_each": 1e6 * (busy + waiting) / workers as f64 / time.steps.max(1) as f64,
            "busy": busy / total,
            "waiting": waiting / total,
        }));
    }
    rows.push(json!({
        "step": "outside of steps",
        "count": null,
        "us_each": null,
        "busy": (total - inside).max(0.0) / total,
        "waiting": 0.0,
    }));
    rows.into()
}

/// A table below the one of the tests.
pub(super) fn print(out: &mut dyn Write, test: &str, depth: &Value, rows: &Value) -> Result<()> {
    writeln!(out, "\n{test}, depth {depth}\n")?;
    writeln!(out, "| step | count | us each | busy | waiting |\n| --- | ---: | ---: | ---: | ---: |")?;
    for row in rows.as_array().into_iter().flatten() {
        let percent = |key: &str| 100.0 * row[key].as_f64().unwrap_or_default();
        let each = row["us_each"].as_f64().map_or(String::new(), |each| format!("{each:.1}"));
        let count = row["count"].as_u64().map_or(String::new(), |count| count.to_string());
        let (step, busy, waiting) =
            (row["step"].as_str().unwrap_or_default(), percent("busy"), percent("waiting"));
        writeln!(out, "| {step} | {count} | {each} | {busy:.1} % | {waiting:.1} % |")?;
    }
    Ok(())
}
