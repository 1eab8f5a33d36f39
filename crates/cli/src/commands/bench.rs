//! `minfer bench`: tokens per second of prefill and decode, and their share of the roofline.

mod profile;
mod streams;

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use minfer::cpu::roofline::{Roofline, roofline};
use minfer::engine::{Runner, RunnerOptions};
use minfer::{ContextLength, Loaded, Machine};
use serde_json::{Value, json};

use super::context::Wanted;
use crate::args::{BenchArgs, BenchFormat};
use crate::counted::counted;
use crate::{loading, output};

/// Rounds of the roofline's measurements, of which the best counts.
const ROOFLINE_ROUNDS: usize = 5;

pub(super) fn bench(args: &BenchArgs) -> Result<()> {
    if let Some(url) = &args.serve {
        return streams::bench(url, args);
    }
    let model = args.model.as_deref().unwrap_or_default();
    let tests = tests(args)?;
    tests.iter().try_for_each(|test| test.wanted().check_asked(&args.context))?;
    let found = loading::find(model)?;
    let mut options = loading::load_options(&args.model_args, &args.tokenizer, &args.context);
    if options.n_ctx == ContextLength::Auto {
        let positions = tests.iter().map(|test| test.depth + test.tokens + 1).max().unwrap_or(1);
        options.n_ctx = ContextLength::AtMost(positions);
    }
    options.head_rows = 1;
    let start = Instant::now();
    let machine = loading::machine(&args.context)?;
    let (machine, profiler) = match args.profile {
        true => {
            let (machine, profiler) = machine.profiled();
            (machine, Some(profiler))
        }
        false => (machine, None),
    };
    let loaded = loading::load_on(&machine, found, &options)?;
    let load_seconds = start.elapsed().as_secs_f64();
    tests.iter().try_for_each(|test| test.wanted().check(&loaded, &args.context))?;
    let subject = Subject::new(args, &machine, &loaded, load_seconds);
    let mut runner = loaded.into_runner(RunnerOptions::default());
    let mut rows = Vec::new();
    for test in &tests {
        let (speed, profile) = measure(&mut runner, test, args.repetitions, &|took| {
            let profiler = profiler.as_ref()?;
            Some(profile::rows(profiler, machine.threads(), took))
        })?;
        let mut row = subject.row(test, speed);
        if let Some(profile) = profile {
            row["profile"] = profile;
        }
        rows.push(row);
    }
    output::answer(|out| print(out, args.output, &subject, &rows))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Prefill,
    Decode,
}

struct Test {
    kind: Kind,
    tokens: u32,
    depth: u32,
}

impl Test {
    fn name(&self) -> String {
        match self.kind {
            Kind::Prefill => format!("pp{}", self.tokens),
            Kind::Decode => format!("tg{}", self.tokens),
        }
    }

    /// The context that it needs, with the flags that ask for it.
    fn wanted(&self) -> Wanted {
        let (flag, less) = match self.kind {
            Kind::Prefill => ("-p", "a smaller -p or -d"),
            Kind::Decode => ("-n", "a smaller -n or -d"),
        };
        let after = if self.depth > 0 { format!(" after -d {}", self.depth) } else { String::new() };
        let tokens = (self.depth + self.tokens) as usize;
        Wanted { what: format!("{flag} {}{after}", self.tokens), tokens, less }
    }
}

fn tests(args: &BenchArgs) -> Result<Vec<Test>> {
    let mut tests = Vec::new();
    for &depth in &args.n_depth {
        let prefills = args.n_prompt.iter().map(|&tokens| Test { kind: Kind::Prefill, tokens, depth });
        let decodes = args.n_gen.iter().map(|&tokens| Test { kind: Kind::Decode, tokens, depth });
        tests.extend(prefills.chain(decodes).filter(|test| test.tokens > 0));
    }
    if tests.is_empty() {
        bail!(output::Wrong("nothing to measure: both -p and -n are 0".to_owned()));
    }
    Ok(tests)
}

/// Median tokens per second of the repetitions after a warm-up run, and the profile of the last one.
/// `profile` gives that of the time since it was last called.
fn measure(
    runner: &mut Runner,
    test: &Test,
    repetitions: u32,
    profile: &dyn Fn(Duration) -> Option<Value>,
) -> Result<(f64, Option<Value>)> {
    let (mut speeds, mut last) = (Vec::new(), None);
    for repetition in 0..=repetitions {
        let took = once(runner, test, profile)?;
        last = profile(took);
        if repetition > 0 {
            speeds.push(f64::from(test.tokens) / took.as_secs_f64());
        }
    }
    speeds.sort_by(f64::total_cmp);
    let middle = speeds.len() / 2;
    let even = speeds.len().is_multiple_of(2);
    Ok((if even { (speeds[middle - 1] + speeds[middle]) / 2.0 } else { speeds[middle] }, last))
}

/// Time of one run, from an empty KV cache.
fn once(runner: &mut Runner, test: &Test, profile: &dyn Fn(Duration) -> Option<Value>) -> Result<Duration> {
    let vocabulary = runner.vocab() as u64;
    let token = |index: u32| ((7919 * u64::from(index) + 13) % (vocabulary - 1).max(1)) as u32;
    let sequence = runner.open();
    let before: Vec<u32> = (0..test.depth).map(token).collect();
    if !before.is_empty() {
        runner.prefill(sequence, &before)?;
    }
    let tokens: Vec<u32> = (test.depth..test.depth + test.tokens).map(token).collect();
    // What came before is not part of the run.
    profile(Duration::ZERO);
    let start = Instant::now();
    match test.kind {
        Kind::Prefill => drop(runner.prefill(sequence, &tokens)?),
        Kind::Decode => {
            for &token in &tokens {
                runner.decode(sequence, token)?;
            }
        }
    }
    let took = start.elapsed();
    runner.close(sequence);
    Ok(took)
}

/// What is measured: the model, the machine, and the machine's roofline.
struct Subject {
    /// Fields of every row.
    common: Value,
    /// Bytes of packed weights that a decoded token reads.
    read_bytes: u64,
    /// Multiply-accumulates of weights for a token of a prefill.
    prefill_products: u64,
    kv_bytes_per_token: u64,
    int8_peak: f64,
    read_bandwidth: f64,
}

impl Subject {
    fn new(args: &BenchArgs, machine: &Machine, loaded: &Loaded, load_seconds: f64) -> Subject {
        let (stats, group) = (loaded.executor().stats(), &loaded.kv.groups[0]);
        let resident_bytes = minfer::resident_memory().ok();
        let traffic = loaded.weight_traffic();
        let weights = loaded.executor().weights();
        let Roofline { int8_operations: int8_peak, read_bytes: read_bandwidth } =
            roofline(machine.pool(), machine.isa(), weights, ROOFLINE_ROUNDS);
        let common = json!({
            "model": args.model.as_deref().unwrap_or_default().to_string_lossy(),
            "threads": machine.threads(),
            "isa": machine.isa().name(),
            "n_batch": args.context.n_batch,
            "kv_format_k": group.k_format.name(),
            "kv_format_v": group.v_format.name(),
            "int8_gops": int8_peak / 1e9,
            "read_gbs": read_bandwidth / 1e9,
            "load_s": load_seconds,
            "file_weight_bytes": loaded.file_weight_bytes,
            "packed_weight_bytes": stats.weight_bytes,
            "workspace_bytes": stats.workspace_bytes,
            "kv_bytes_per_token": loaded.kv.bytes_per_token(),
            "resident_bytes": resident_bytes,
        });
        Subject {
            common,
            read_bytes: traffic.bytes,
            prefill_products: traffic.body_products,
            kv_bytes_per_token: loaded.kv.bytes_per_token(),
            int8_peak,
            read_bandwidth,
        }
    }

    /// Share of the roofline: of integer products for a prefill, of bytes read for a decode.
    fn of_roofline(&self, test: &Test, speed: f64) -> f64 {
        match test.kind {
            Kind::Prefill => 2.0 * self.prefill_products as f64 * speed / self.int8_peak,
            Kind::Decode => {
                let mean_depth = f64::from(test.depth) + f64::from(test.tokens) / 2.0;
                let bytes = self.read_bytes as f64 + mean_depth * self.kv_bytes_per_token as f64;
                bytes * speed / self.read_bandwidth
            }
        }
    }

    fn row(&self, test: &Test, speed: f64) -> Value {
        let mut row = self.common.clone();
        row["test"] = json!(test.name());
        row["n"] = json!(test.tokens);
        row["depth"] = json!(test.depth);
        row["tok_s"] = json!(speed);
        row["of_limit"] = json!(self.of_roofline(test, speed));
        row
    }

    fn header(&self) -> String {
        let number = |key: &str| self.common[key].as_f64().unwrap_or_default();
        let count = |key: &str| self.common[key].as_u64().unwrap_or_default();
        let bytes = |key: &str| self.common[key].as_u64().map_or("unknown".to_owned(), output::bytes);
        let text = |key: &str| self.common[key].as_str().unwrap_or_default();
        format!(
            "{}: {}, {}; int8 {:.0} GOP/s, reads {:.1} GB/s\n\
             loaded in {:.2} s; weights {} packed ({} in the file), workspace {}, KV cache {} a token ({}/{}), resident {}\n",
            text("model"),
            counted(count("threads"), "thread"),
            text("isa"),
            number("int8_gops"),
            number("read_gbs"),
            number("load_s"),
            bytes("packed_weight_bytes"),
            bytes("file_weight_bytes"),
            bytes("workspace_bytes"),
            counted(count("kv_bytes_per_token"), "byte"),
            text("kv_format_k"),
            text("kv_format_v"),
            bytes("resident_bytes"),
        )
    }
}

fn print(out: &mut dyn Write, format: BenchFormat, subject: &Subject, rows: &[Value]) -> Result<()> {
    match format {
        BenchFormat::Json => writeln!(out, "{}", Value::from(rows))?,
        BenchFormat::Csv => print_csv(out, rows)?,
        BenchFormat::Md => {
            writeln!(out, "{}", subject.header())?;
            print_table(out, rows)?;
            for row in rows.iter().filter(|row| row["profile"].is_array()) {
                profile::print(
                    out,
                    row["test"].as_str().unwrap_or_default(),
                    &row["depth"],
                    &row["profile"],
                )?;
            }
        }
    }
    Ok(())
}

/// One column for each field of a row.
pub(super) fn print_csv(out: &mut dyn Write, rows: &[Value]) -> Result<()> {
    let fields = |row: &Value| row.as_object().cloned().unwrap_or_default();
    let Some(first) = rows.first().map(fields) else { return Ok(()) };
    writeln!(out, "{}", first.keys().map(String::as_str).collect::<Vec<_>>().join(","))?;
    for row in rows {
        writeln!(out, "{}", fields(row).values().map(csv_field).collect::<Vec<_>>().join(","))?;
    }
    Ok(())
}

fn csv_field(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) if text.contains([',', '"', '\n', '\r']) => {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn print_table(out: &mut dyn Write, rows: &[Value]) -> Result<()> {
    writeln!(out, "| test | depth | tokens/s | of limit |\n| --- | ---: | ---: | ---: |")?;
    let number = |row: &Value, key: &str| row[key].as_f64().unwrap_or_default();
    for row in rows {
        let (speed, share) = (number(row, "tok_s"), 100.0 * number(row, "of_limit"));
        let test = row["test"].as_str().unwrap_or_default();
        writeln!(out, "| {test} | {} | {speed:.1} | {share:.0} % |", row["depth"])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_commas_are_quoted() {
        assert_eq!(csv_field(&json!("a,\"b\"")), "\"a,\"\"b\"\"\"");
        assert_eq!(
            (csv_field(&json!("a")), csv_field(&json!(1.5)), csv_field(&json!(null))),
            ("a".into(), "1.5".into(), String::new())
        );
    }
}
