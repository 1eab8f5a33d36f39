//! Prompts beside decoding streams: steps are sized by time, and that changes no answer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use minfer_graph::Batch;

use super::*;
use crate::test_model::hooked::{Hooked, Hooks};

/// 3 ms for each decoded row; 40 microseconds for a token of a prompt, and a 50th of one for each
/// token before it.
fn body_time(batch: &Batch<'_>) -> Duration {
    let micros = batch.sequences.iter().map(|view| match view.rows.len() {
        1 => 3000.0,
        tokens => tokens as f64 * (40.0 + 0.02 * (f64::from(view.cached) + tokens as f64 / 2.0)),
    });
    Duration::from_secs_f64(micros.sum::<f64>() / 1e6)
}

fn timed(step_target: f32) -> (Bench, Arc<Mutex<Hooks>>) {
    let hooks = Arc::new(Mutex::new(Hooks { body_time: Some(body_time), ..Hooks::default() }));
    let given = Arc::clone(&hooks);
    let config = EngineConfig { n_ctx: 2048, n_batch: 512, step_target, ..Shape::default().config };
    let shape = Shape { config, blocks: 600, ..Shape::default() };
    let mut bench = Bench::with_model(&eloquent(), shape, |executor| Hooked { executor, hooks: given });
    let clock = Arc::clone(&hooks);
    bench.worker.clock = Box::new(move || clock.lock().unwrap().time);
    (bench, hooks)
}

#[test]
fn a_long_prompt_slows_a_stream_by_the_target_and_no_more() {
    let stream = sampled(&[1, 2, 3], 200, 4);
    let prompt = sampled(&(0..1500).map(|index| index * 7 % 250).collect::<Vec<u32>>(), 2, 5);
    let alone: Vec<Vec<u32>> =
        [&stream, &prompt].map(|request| timed(2.0).0.answer(request.clone()).ids()).into();
    for (step_target, longest) in [(2.0f32, 7.0), (4.0, 14.0), (0.0, f64::INFINITY)] {
        let (mut bench, hooks) = timed(step_target);
        let (_, first) = bench.submit(stream.clone()).unwrap();
        (0..10).for_each(|_| assert!(bench.worker.step()));
        let (_, second) = bench.submit(prompt.clone()).unwrap();
        let fed = bench.stats().tokens_fed;
        let mut millis = Vec::new();
        while bench.stats().tokens_fed < fed + 1500 {
            let before = hooks.lock().unwrap().time;
            assert!(bench.worker.step());
            millis.push((hooks.lock().unwrap().time - before).as_secs_f64() * 1e3);
        }
        bench.drain();
        assert_eq!([Answer::of(&first).ids(), Answer::of(&second).ids()], alone[..], "{step_target}");
        let most = millis.iter().fold(0.0, |most: f64, &step| most.max(step));
        assert!(most <= longest, "{step_target}: {most} ms in {millis:?}");
        if step_target > 0.0 {
            let wanted = 3.0 * f64::from(step_target) * 0.8;
            let full = millis.iter().filter(|&&step| step >= wanted).count();
            assert!(full * 10 >= millis.len() * 8, "{step_target}: steps are too short: {millis:?}");
        } else {
            assert_eq!(millis.len(), 3, "only n_batch bounds a step");
        }
        bench.assert_idle();
    }
}

/// A target that leaves no time for prompts still feeds them, a token a step, and every stream
/// decodes in every step.
#[test]
fn nobody_starves_without_time() {
    let (mut bench, _) = timed(1.001);
    let streams: Vec<_> = (0..2).map(|seed| bench.submit(sampled(&[seed, 3], 120, 7)).unwrap().1).collect();
    (0..4).for_each(|_| assert!(bench.worker.step()));
    let (_, prompt) = bench.submit(sampled(&[9; 50], 3, 5)).unwrap();
    let generated = bench.stats().generated_tokens;
    (0..60).for_each(|_| assert!(bench.worker.step()));
    assert!(bench.stats().generated_tokens >= generated + 120, "a stream waited");
    let answer: Vec<Event> = std::iter::from_fn(|| prompt.try_recv()).collect();
    assert!(answer.last().is_some_and(Event::is_terminal), "{answer:?}");
    bench.drain();
    streams.iter().for_each(|events| assert_eq!(Answer::of(events).ids().len(), 120));
}
