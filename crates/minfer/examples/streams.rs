//! Measures streams that decode together: `cargo run --release -p minfer --example streams --
//! MODEL.gguf [PROMPT_TOKENS] [ANSWER_TOKENS] [profile]`.
//!
//! Prints tokens per second of all streams together for 1, 2, 4 and 8 streams, prompts included;
//! with `profile` also the time of each kind of step for 8 streams.

use std::error::Error;
use std::time::Instant;

use minfer::engine::{Engine, Request, SamplingParams};
use minfer::{ContextLength, LoadOptions, Loaded, Machine, MachineOptions, ModelFile};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: streams MODEL.gguf [PROMPT] [ANSWER] [profile]")?;
    let prompt: u32 = arguments.next().map_or(Ok(110), |text| text.parse())?;
    let answer: u32 = arguments.next().map_or(Ok(128), |text| text.parse())?;
    let profile = arguments.next().is_some();
    let machine = Machine::new(&MachineOptions { threads: Some(2), ..MachineOptions::default() })?;
    let (machine, profiler) = if profile {
        let (machine, profiler) = machine.profiled();
        (machine, Some(profiler))
    } else {
        (machine, None)
    };
    let file = ModelFile::open(path.as_ref())?;
    let n_ctx = ContextLength::Fixed(prompt + answer + 64);
    let loaded = Loaded::new(&machine, &file, &LoadOptions { n_ctx, n_slots: 8, ..LoadOptions::default() })?;
    let engine = loaded.into_engine()?;
    run(&engine, 1, prompt, 16)?;
    let mut alone = 0.0;
    for streams in [1, 2, 4, 8] {
        if let Some(profiler) = &profiler {
            profiler.take();
        }
        let steps = engine.stats().steps;
        let start = Instant::now();
        run(&engine, streams, prompt, answer)?;
        let seconds = start.elapsed().as_secs_f64();
        let speed = f64::from(streams * answer) / seconds;
        alone = if streams == 1 { speed } else { alone };
        println!(
            "{streams} streams: {speed:7.1} tokens/s, {:.2} x one, {:.2} ms a step",
            speed / alone,
            1e3 * seconds / (engine.stats().steps - steps) as f64
        );
        if let Some(profiler) = &profiler {
            let mut times: Vec<_> = profiler.take().into_iter().collect();
            times.sort_by_key(|(_, time)| std::cmp::Reverse(time.busy + time.waiting));
            let total = 2.0 * seconds;
            for (kind, time) in times {
                let share = |time: std::time::Duration| 100.0 * time.as_secs_f64() / total;
                println!(
                    "  {kind:32} {:7} steps {:6.2} us, busy {:5.1} %, waiting {:5.1} %",
                    time.steps,
                    1e6 * (time.busy + time.waiting).as_secs_f64() / 2.0 / time.steps as f64,
                    share(time.busy),
                    share(time.waiting)
                );
            }
        }
    }
    Ok(())
}

/// Starts the streams together and waits for all.
fn run(engine: &Engine, streams: u32, prompt: u32, answer: u32) -> Result<(), Box<dyn Error>> {
    let started = (0..streams).map(|stream| {
        let mut state = stream + 1;
        let tokens = (0..prompt).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % 1000 + 300
        });
        let request = Request {
            max_tokens: Some(answer),
            ignore_eos: true,
            sampling: SamplingParams::default(),
            seed: Some(u64::from(stream)),
            reuse: false,
            ..Request::new(tokens.collect())
        };
        Ok(engine.submit(request)?.1)
    });
    let started: Vec<_> = started.collect::<Result<_, Box<dyn Error>>>()?;
    started.into_iter().for_each(|events| drop(events.last()));
    Ok(())
}
