use super::*;
use crate::batcher::{Candidate, schedule};

/// A machine of the simulation: what a step takes, in microseconds.
struct Machine {
    decode: f64,
    token: f64,
    /// What each token of depth adds to a token's cost.
    depth: f64,
}

impl Machine {
    fn takes(&self, step: &StepShape) -> f64 {
        let tokens = step.chunks.iter().map(|&(depth, tokens)| {
            let depth = f64::from(depth) + f64::from(tokens) / 2.0;
            f64::from(tokens) * (self.token + self.depth * depth)
        });
        self.decode * step.decoding as f64 + tokens.sum::<f64>()
    }
}

/// Feeds a prompt of `length` tokens beside `decoding` rows; returns each step's size and its time.
fn feed(pace: &mut Pace, machine: &Machine, decoding: usize, length: u32) -> Vec<(u32, f64)> {
    let (mut fed, mut steps) = (0, Vec::new());
    while fed < length {
        let mut running = vec![Candidate { pending: 1, cached: 9 }; decoding];
        running.push(Candidate { pending: length - fed, cached: fed });
        let given = schedule(&running, 512, &pace.budget(decoding))[decoding];
        let chunks = if given > 0 { vec![(fed, given)] } else { Vec::new() };
        let shape = StepShape { decoding, chunks };
        let micros = machine.takes(&shape);
        // Every fortieth step is held up by the system.
        let held_up = if steps.len() % 40 == 39 { 10.0 } else { 1.0 };
        pace.record(&shape, Duration::from_secs_f64(micros * held_up / 1e6));
        steps.push((given, micros));
        fed += given;
        assert!(steps.len() < 10_000, "no progress");
    }
    steps
}

#[test]
fn steps_take_the_target_whatever_the_depth() {
    for target in [1.5f32, 2.0, 4.0] {
        for depth in [0.0, 0.05] {
            let machine = Machine { decode: 3000.0, token: 50.0, depth };
            let mut pace = Pace::new(target, 4);
            let steps = feed(&mut pace, &machine, 1, 4000);
            let aim = machine.decode * f64::from(target);
            let settled = &steps[12..steps.len() - 1];
            let mixed = settled.iter().filter(|(given, _)| *given > 0);
            for &(given, micros) in mixed.clone() {
                assert!(micros < aim * 1.15, "{given} tokens take {micros}, not {aim}");
            }
            let full = mixed.clone().filter(|(_, micros)| *micros > aim * 0.85).count();
            assert!(full * 100 > mixed.count() * 90, "steps are too small");
            let probes = steps.iter().filter(|(given, _)| *given == 0).count();
            assert!(probes < 4 + steps.len() / 60, "{probes} of {} steps feed nothing", steps.len());
            assert!(steps.windows(2).all(|pair| pair[0].0 + pair[1].0 > 0), "two steps without progress");
        }
    }
}

#[test]
fn the_first_piece_is_small_where_nothing_was_measured() {
    let machine = Machine { decode: 3000.0, token: 500.0, depth: 0.0 };
    let steps = feed(&mut Pace::new(2.0, 1), &machine, 1, 100);
    assert_eq!((steps[0].0, steps[1].0), (0, FIRST_CHUNK as u32));
}

#[test]
fn what_a_prompt_cost_alone_sizes_its_first_piece() {
    let mut pace = Pace::new(2.0, 1);
    pace.record(&StepShape { decoding: 0, chunks: vec![(0, 100)] }, Duration::from_micros(10_000));
    pace.record(&StepShape { decoding: 1, chunks: Vec::new() }, Duration::from_micros(3_000));
    let Budget::Time(time) = pace.budget(1) else { panic!("bounded by time") };
    assert_eq!((time.micros.round(), (time.token_micros)(7)), (3000.0, 100.0));
}

#[test]
fn a_slower_machine_is_followed_within_a_few_steps() {
    let mut pace = Pace::new(2.0, 1);
    feed(&mut pace, &Machine { decode: 3000.0, token: 50.0, depth: 0.0 }, 1, 2000);
    let slower = Machine { decode: 3000.0, token: 200.0, depth: 0.0 };
    let steps = feed(&mut pace, &slower, 1, 2000);
    let over = steps.iter().filter(|(_, micros)| *micros > 7000.0).count();
    // The prompt passes four depths, each with an estimate of its own.
    assert!(over <= 4 * KEPT, "{over} of {} steps", steps.len());
}

#[test]
fn a_step_that_the_system_held_up_does_not_make_the_next_one_huge() {
    let mut pace = Pace::new(2.0, 1);
    let chunk = StepShape { decoding: 1, chunks: vec![(0, 60)] };
    // The only decode-only step was measured ten times too long.
    pace.record(&StepShape { decoding: 1, chunks: Vec::new() }, Duration::from_micros(30_000));
    pace.record(&chunk, Duration::from_micros(6_000));
    let Budget::DecodeOnly = pace.budget(1) else { panic!("the decode-only step is measured again") };
    pace.record(&StepShape { decoding: 1, chunks: Vec::new() }, Duration::from_micros(3_000));
    let running = [Candidate { pending: 1, cached: 0 }, Candidate { pending: 4000, cached: 60 }];
    let given = schedule(&running, 512, &pace.budget(1))[1];
    assert!((60..=240).contains(&given), "{given}");
}

#[test]
fn no_target_and_no_decoding_row_bound_nothing() {
    assert!(matches!(Pace::new(0.0, 4).budget(2), Budget::Unbounded));
    assert!(matches!(Pace::new(2.0, 4).budget(0), Budget::Unbounded));
    assert!(matches!(Pace::new(2.0, 4).budget(2), Budget::DecodeOnly));
}
