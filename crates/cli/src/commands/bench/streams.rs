//! `minfer bench --serve`: streams of a running server, as a client sees them.

use std::io::Write;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};

use super::print_csv;
use crate::args::{BenchArgs, BenchFormat};
use crate::http::Remote;
use crate::output;

/// Token ids of prompts: in every vocabulary, and seldom control tokens.
const IDS: std::ops::Range<u64> = 100..250;

/// What one stream saw, in milliseconds.
#[derive(Default)]
struct Seen {
    first: f64,
    between: Vec<f64>,
    /// Tokens by the server's count.
    tokens: u64,
}

pub(super) fn bench(url: &str, args: &BenchArgs) -> Result<()> {
    let remote = Remote::new(url);
    let model = remote.model()?;
    let (mut rows, mut next_prompt) = (Vec::new(), 0);
    for (&prompt, &answer) in args.n_prompt.iter().flat_map(|p| args.n_gen.iter().map(move |n| (p, n))) {
        let mut round = |streams| {
            next_prompt += u64::from(streams);
            measure(&remote, &model, streams, prompt, answer, next_prompt)
        };
        round(1)?;
        let mut alone = None;
        for &streams in &args.streams {
            let rounds: Result<Vec<_>> = (0..args.repetitions).map(|_| round(streams)).collect();
            let row = row(streams, prompt, answer, rounds?, &mut alone);
            rows.push(row);
        }
    }
    output::answer(|out| match args.output {
        BenchFormat::Json => Ok(writeln!(out, "{}", Value::from(rows.as_slice()))?),
        BenchFormat::Csv => print_csv(out, &rows),
        BenchFormat::Md => print_table(out, &rows),
    })
}

/// The row of the round with the median speed.
fn row(
    streams: u32,
    prompt: u32,
    answer: u32,
    mut rounds: Vec<(f64, Vec<Seen>)>,
    alone: &mut Option<f64>,
) -> Value {
    rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (speed, seen) = rounds.swap_remove(rounds.len() / 2);
    let mut first: Vec<f64> = seen.iter().map(|seen| seen.first).collect();
    let mut between: Vec<f64> = seen.into_iter().flat_map(|seen| seen.between).collect();
    let one = *alone.get_or_insert(speed / f64::from(streams));
    json!({
        "streams": streams, "prompt": prompt, "answer": answer, "tok_s": speed, "of_one": speed / one,
        "ttft_ms": share(&mut first, 0.5), "ttft_p99_ms": share(&mut first, 0.99),
        "between_ms": share(&mut between, 0.5), "between_p99_ms": share(&mut between, 0.99),
    })
}

/// The value below which a share of the values lies.
fn share(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let index = (values.len() as f64 * share).ceil() as usize;
    values.get(index.saturating_sub(1)).copied().unwrap_or_default()
}

/// Tokens per second of all streams together, prompts included.
fn measure(
    remote: &Remote,
    model: &str,
    streams: u32,
    prompt: u32,
    answer: u32,
    seed: u64,
) -> Result<(f64, Vec<Seen>)> {
    let start = Instant::now();
    let seen: Result<Vec<Seen>> = std::thread::scope(|scope| {
        let stream = |index: u32| {
            let body = body(model, prompt, answer, seed + u64::from(index));
            scope.spawn(move || one(remote, &body))
        };
        let running: Vec<_> = (0..streams).map(stream).collect();
        running.into_iter().map(|stream| stream.join().map_err(|_| anyhow!("a stream panicked"))?).collect()
    });
    let seen = seen?;
    let tokens: u64 = seen.iter().map(|seen| seen.tokens).sum();
    Ok((tokens as f64 / start.elapsed().as_secs_f64(), seen))
}

/// A prompt of its own, so that no rows are reused.
fn body(model: &str, prompt: u32, answer: u32, seed: u64) -> Value {
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let ids = (0..prompt.max(1)).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        IDS.start + (state >> 33) % (IDS.end - IDS.start)
    });
    json!({
        "model": model, "prompt": ids.collect::<Vec<_>>(), "max_tokens": answer, "ignore_eos": true,
        "stream": true, "stream_options": {"include_usage": true}, "cache_prompt": false, "seed": seed,
    })
}

fn one(remote: &Remote, body: &Value) -> Result<Seen> {
    let start = Instant::now();
    let (mut seen, mut last) = (Seen::default(), None);
    for chunk in remote.stream("/v1/completions", body)? {
        let chunk = chunk?;
        if let Some(tokens) = chunk["usage"]["completion_tokens"].as_u64() {
            seen.tokens = tokens;
        }
        if chunk["choices"][0]["text"].as_str().is_none_or(str::is_empty) {
            continue;
        }
        let now = start.elapsed().as_secs_f64() * 1e3;
        match last.replace(now) {
            None => seen.first = now,
            Some(before) => seen.between.push(now - before),
        }
    }
    (seen.tokens > 0).then_some(seen).context("the server did not count the tokens of its answer")
}

fn print_table(out: &mut dyn Write, rows: &[Value]) -> Result<()> {
    writeln!(
        out,
        "| streams | prompt | answer | tokens/s | of one | first token ms, p99 | between tokens ms, p99 |\n\
         | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    )?;
    for row in rows {
        let number = |key: &str| row[key].as_f64().unwrap_or_default();
        writeln!(
            out,
            "| {} | {} | {} | {:.1} | {:.2} | {:.0}, {:.0} | {:.1}, {:.1} |",
            row["streams"],
            row["prompt"],
            row["answer"],
            number("tok_s"),
            number("of_one"),
            number("ttft_ms"),
            number("ttft_p99_ms"),
            number("between_ms"),
            number("between_p99_ms"),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_values() {
        let mut values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!((share(&mut values, 0.5), share(&mut values, 0.99)), (100.0, 198.0));
        assert_eq!(share(&mut [], 0.5), 0.0);
    }
}
