//! Measures what a long prompt does to a stream that decodes, and what the stream does to the
//! prompt: `cargo run --release -p minfer --example step_latency -- MODEL.gguf [STEP_TARGET]
//! [PROMPT_TOKENS]`.
//!
//! One request decodes alone, then a second one with a long prompt arrives. Prints the time between
//! two tokens of the stream before and while the prompt is fed, and the time to the prompt's first
//! token alone and beside the stream.

use std::error::Error;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use minfer::engine::{Engine, EngineConfig, Event, Events, Request, SamplingParams};
use minfer::{ContextLength, LoadOptions, Loaded, Machine, MachineOptions, ModelFile};

/// Tokens of the stream before the prompt arrives.
const BEFORE: usize = 300;
/// Interleaved repetitions.
const ROUNDS: u32 = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: step_latency MODEL.gguf [STEP_TARGET] [PROMPT_TOKENS]")?;
    let target: Option<f32> = arguments.next().map(|text| text.parse()).transpose()?;
    let length: u32 = arguments.next().map_or(Ok(4000), |text| text.parse())?;
    let machine = Machine::new(&MachineOptions { threads: Some(2), ..MachineOptions::default() })?;
    let file = ModelFile::open(path.as_ref())?;
    let n_ctx = ContextLength::Fixed(length + 4096);
    let options = LoadOptions { n_ctx, n_slots: 4, ..LoadOptions::default() };
    let loaded = Loaded::new(&machine, &file, &options)?;
    let defaults = loaded.engine_config();
    let config = EngineConfig { step_target: target.unwrap_or(defaults.step_target), ..defaults };
    println!("step_target {}, {length} tokens", config.step_target);
    let engine = loaded.into_engine_with(config)?;
    for round in 0..ROUNDS {
        let alone = first_token(&submit(&engine, length, 2 * round + 1, 1)?)?;
        let (before, during, beside, steps) = beside_a_stream(&engine, length, 2 * round + 2)?;
        let [p50, p99, most] = quantiles(before);
        let [busy50, busy99, busy_most] = quantiles(during);
        println!("stream alone:   p50 {p50:7.2} ms, p99 {p99:7.2}, max {most:7.2}");
        println!(
            "stream beside:  p50 {busy50:7.2} ms, p99 {busy99:7.2}, max {busy_most:7.2}, {steps} tokens"
        );
        println!("p99 beside / p50 alone: {:.2}; / p50 beside: {:.2}", busy99 / p50, busy99 / busy50);
        let ratio = beside.as_secs_f64() / alone.as_secs_f64();
        println!(
            "prompt alone {:.2} s, beside {:.2} s: {ratio:.2} times",
            alone.as_secs_f64(),
            beside.as_secs_f64()
        );
    }
    Ok(())
}

/// A request of pseudo-random tokens.
fn submit(engine: &Engine, length: u32, seed: u32, tokens: u32) -> Result<Events, Box<dyn Error>> {
    let mut state = seed;
    let prompt = (0..length).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % 1000 + 300
    });
    let sampling = SamplingParams::greedy();
    let request = Request {
        max_tokens: Some(tokens),
        ignore_eos: true,
        sampling,
        reuse: false,
        ..Request::new(prompt.collect())
    };
    Ok(engine.submit(request)?.1)
}

/// Time from now to the first token.
fn first_token(events: &Events) -> Result<Duration, Box<dyn Error>> {
    let start = Instant::now();
    while let Some(event) = events.recv() {
        match event {
            Event::Token(_) => return Ok(start.elapsed()),
            Event::Failed(error) => return Err(error.into()),
            _ => {}
        }
    }
    Err("no token came".into())
}

type Gaps = Vec<Duration>;

/// Gaps of a stream before a prompt arrives and while it is fed, the time to the prompt's first
/// token, and the number of the stream's tokens in it.
fn beside_a_stream(
    engine: &Engine,
    length: u32,
    seed: u32,
) -> Result<(Gaps, Gaps, Duration, usize), Box<dyn Error>> {
    let stream = submit(engine, 60, seed, 4000)?;
    let (times, arrivals) = mpsc::channel();
    let (enough, warm) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        for (count, _) in stream.filter(|event| matches!(event, Event::Token(_))).enumerate() {
            if count == BEFORE {
                let _ = enough.send(());
            }
            if times.send(Instant::now()).is_err() {
                return;
            }
        }
    });
    warm.recv()?;
    let arrived = Instant::now();
    let beside = first_token(&submit(engine, length, seed + 1000, 1)?)?;
    let ended = arrived + beside;
    std::thread::sleep(Duration::from_millis(50));
    let times: Vec<Instant> = arrivals.try_iter().collect();
    drop(arrivals);
    reader.join().map_err(|_| "the reader panicked")?;
    let gap = |pair: &[Instant]| pair[1] - pair[0];
    // The first tokens warm caches and estimates up.
    let before = times.windows(2).skip(20).filter(|pair| pair[1] < arrived).map(gap).collect();
    let during: Gaps =
        times.windows(2).filter(|pair| pair[1] > arrived && pair[0] < ended).map(gap).collect();
    let steps = during.len();
    Ok((before, during, beside, steps))
}

/// Median, 99th percentile and maximum in milliseconds.
fn quantiles(mut gaps: Gaps) -> [f64; 3] {
    gaps.sort_unstable();
    let at = |share: f64| {
        gaps.get(((gaps.len() - 1) as f64 * share) as usize).map_or(0.0, |gap| gap.as_secs_f64() * 1e3)
    };
    [at(0.5), at(0.99), at(1.0)]
}
