use proptest::prelude::*;

use super::*;

fn candidates(running: &[(u32, u32)]) -> Vec<Candidate> {
    running.iter().map(|&(pending, cached)| Candidate { pending, cached }).collect()
}

fn plan(running: &[u32], tokens: u32) -> Vec<u32> {
    let running: Vec<Candidate> = running.iter().map(|&pending| Candidate { pending, cached: 0 }).collect();
    schedule(&running, tokens, &Budget::Unbounded)
}

/// `micros` for tokens that cost 10 and a tenth for each token before them.
fn time(micros: f64) -> Budget<'static> {
    Budget::Time(TimeBudget { micros, token_micros: Box::new(cost) })
}

fn cost(depth: u32) -> f64 {
    10.0 + f64::from(depth) / 10.0
}

#[test]
fn decoding_sequences_come_before_prompts() {
    assert_eq!(plan(&[100, 1, 1, 1, 50], 8), [4, 1, 1, 1, 1]);
    assert_eq!(plan(&[1, 1, 50], 2), [1, 1, 0]);
}

#[test]
fn a_short_prompt_does_not_wait_for_a_long_one() {
    assert_eq!(plan(&[1000, 3, 1000], 8), [6, 2, 0]);
    assert_eq!(plan(&[994, 1, 1000], 8), [6, 1, 1]);
}

#[test]
fn the_oldest_prompt_takes_what_others_leave() {
    assert_eq!(plan(&[1000], 8), [8]);
    assert_eq!(plan(&[5, 1000], 8), [5, 3]);
}

#[test]
fn time_bounds_pieces_and_deep_tokens_are_dearer() {
    assert_eq!(schedule(&candidates(&[(1, 5), (1000, 0)]), 512, &time(101.0)), [1, 10]);
    assert_eq!(schedule(&candidates(&[(1, 5), (1000, 900)]), 512, &time(101.0)), [1, 1]);
    assert_eq!(schedule(&candidates(&[(1, 5), (1000, 5000)]), 512, &time(101.0)), [1, 1], "one at least");
    assert_eq!(schedule(&candidates(&[(1, 5), (1000, 0)]), 4, &time(1e9)), [1, 3], "tokens bound too");
    assert_eq!(schedule(&candidates(&[(1, 5), (1000, 0), (1000, 0)]), 512, &time(101.0)), [1, 7, 3]);
    assert_eq!(schedule(&candidates(&[(1, 5), (1000, 0)]), 512, &Budget::DecodeOnly), [1, 0]);
    assert_eq!(schedule(&candidates(&[(1000, 0)]), 512, &Budget::DecodeOnly), [512], "nothing decodes");
}

/// A sequence of the simulation: tokens not yet fed, and tokens still to be generated after them.
#[derive(Debug, Clone)]
struct Life {
    pending: u32,
    fed: u32,
    to_generate: u32,
    admitted_at: Option<u32>,
    idle: u32,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Runs queues to their end: every token is fed exactly once, the budgets hold, nobody waits for ever. `micros` 0
    /// stands for a time without bound, and one step in `probes` only decodes.
    #[test]
    fn every_token_is_fed_once_within_the_budget(
        arrivals in prop::collection::vec((1..60u32, 0..20u32, 0..6u32), 1..12),
        slots in 1..5usize,
        extra in 0..20u32,
        micros in prop_oneof![Just(0u32), 1..300u32],
        probes in 2..9u32,
    ) {
        let tokens = slots as u32 + extra;
        let total: u32 = arrivals.iter().map(|&(prompt, generate, _)| prompt + generate).sum();
        let mut pause = 0;
        let mut arriving = arrivals.into_iter().map(|(prompt, generate, delay)| {
            pause += delay;
            let life = Life { pending: prompt, fed: 0, to_generate: generate, admitted_at: None, idle: 0 };
            (pause, life)
        }).peekable();
        let (mut waiting, mut running): (Vec<Life>, Vec<Life>) = Default::default();
        let mut fed = 0;
        for step in 0u32.. {
            while let Some((_, life)) = arriving.next_if(|(at, _)| *at <= step) {
                waiting.push(life);
            }
            if waiting.is_empty() && running.is_empty() {
                if arriving.peek().is_none() { break }
                continue;
            }
            while running.len() < slots && !waiting.is_empty() {
                running.push(waiting.remove(0));
            }
            let candidates: Vec<Candidate> =
                running.iter().map(|life| Candidate { pending: life.pending, cached: life.fed }).collect();
            let decoding = running.iter().filter(|life| life.pending == 1).count();
            let bounded = micros > 0 && decoding > 0;
            let probe = bounded && step % probes == 0;
            let budget = match (bounded, probe) {
                (false, _) => Budget::Unbounded,
                (_, true) => Budget::DecodeOnly,
                _ => time(f64::from(micros)),
            };
            let plan = schedule(&candidates, tokens, &budget);
            let given: u32 = plan.iter().sum();
            let known: u32 = running.iter().map(|life| life.pending).sum();
            prop_assert!(given >= 1 && given <= tokens.min(known), "{:?}", plan);
            if !bounded {
                prop_assert_eq!(given, tokens.min(known), "{:?}", plan);
            }
            let prompts = running.iter().zip(&plan).filter(|(life, _)| life.pending > 1);
            let costs: Vec<f64> = prompts
                .flat_map(|(life, &given)| (0..given).map(move |index| cost(life.fed + index)))
                .collect();
            prop_assert!(!probe || costs.is_empty(), "{:?}", plan);
            let spent: f64 = costs.iter().sum();
            let half_a_token = costs.iter().fold(0.0, |most: f64, &cost| most.max(cost)) / 2.0;
            prop_assert!(!bounded || costs.len() <= 1 || spent <= f64::from(micros) + half_a_token + 1e-6, "{:?}: {}", plan, spent);
            fed += given;
            for (life, &given) in running.iter_mut().zip(&plan) {
                life.admitted_at.get_or_insert(step);
                prop_assert!(given <= life.pending);
                prop_assert!(life.pending != 1 || given == 1, "a decoding sequence waits");
                life.idle = if given == 0 { life.idle + 1 } else { 0 };
                prop_assert!(life.idle <= 2 * total + 1, "starved");
                life.fed += given;
                life.pending -= given;
                if life.pending == 0 && life.to_generate > 0 {
                    life.to_generate -= 1;
                    life.pending = 1;
                }
            }
            let oldest_first = running.iter().map(|life| life.admitted_at);
            prop_assert!(oldest_first.is_sorted());
            running.retain(|life| life.pending > 0);
            prop_assert!(step < 10 * total + 100, "never ends");
        }
        prop_assert_eq!(fed, total);
    }
}
