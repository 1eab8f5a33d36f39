use std::collections::BTreeMap;
use std::time::Instant;

use proptest::prelude::*;

use super::candidates::Candidate;
use super::logprobs::{FLOOR, LogSoftmax};
use super::*;

fn off() -> SamplingParams {
    SamplingParams { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..SamplingParams::default() }
}

fn choose(params: &SamplingParams, logits: &[f32], history: &[u32], index: u32) -> Result<u32, SampleError> {
    Sampler::new(params.clone(), 1, 0).sample(&mut Scratch::default(), logits, None, history, index)
}

/// Probabilities of the tokens that are left after all stages.
fn distribution(params: &SamplingParams, logits: &[f32], history: &[u32]) -> BTreeMap<u32, f64> {
    let sampler = Sampler::new(params.clone(), 1, 0);
    let mut scratch = Scratch::default();
    let mut candidates = Candidates::new(&mut scratch, logits).unwrap();
    sampler.narrow(&mut candidates, history, 0);
    let mut left = Vec::new();
    candidates.for_each(|candidate| left.push((candidate.id, f64::from(candidate.logit))));
    softmax(&left)
}

fn softmax(logits: &[(u32, f64)]) -> BTreeMap<u32, f64> {
    let highest = logits.iter().map(|&(_, logit)| logit).fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = logits.iter().map(|&(_, logit)| (logit - highest).exp()).sum();
    let all = logits.iter().map(|&(id, logit)| (id, (logit - highest).exp() / total));
    all.filter(|&(_, probability)| probability > 0.0).collect()
}

/// The same in f64, by sorting everything at each stage. `None` where a threshold is met too
/// closely to tell.
fn reference(params: &SamplingParams, logits: &[f32], history: &[u32]) -> Option<BTreeMap<u32, f64>> {
    let mut left: Vec<(u32, f64)> = (0..).zip(logits.iter().map(|&logit| f64::from(logit))).collect();
    for &(id, bias) in &params.logit_bias {
        left[id as usize].1 += f64::from(bias);
    }
    for stage in &params.order {
        left.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        match stage {
            Stage::Penalties => {
                let last = usize::try_from(params.repeat_last_n).unwrap_or(usize::MAX).min(history.len());
                let window = &history[history.len() - last..];
                for (id, logit) in &mut left {
                    let count = window.iter().filter(|&seen| seen == id).count() as f64;
                    if count > 0.0 {
                        let penalty = f64::from(params.repeat_penalty);
                        *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
                        *logit -= f64::from(params.presence_penalty);
                        *logit -= f64::from(params.frequency_penalty) * count;
                    }
                }
            }
            Stage::TopK if params.top_k > 0 => left.truncate(params.top_k as usize),
            Stage::TopP if params.top_p < 1.0 => {
                let probabilities = softmax(&left);
                let mut sum = 0.0;
                let mut kept = 0;
                while kept == 0 || sum < f64::from(params.top_p) {
                    let probability = probabilities.get(&left[kept].0).copied().unwrap_or(0.0);
                    sum += probability;
                    kept += 1;
                    if (sum - f64::from(params.top_p)).abs() < 1e-6 {
                        return None;
                    }
                }
                left.truncate(kept);
            }
            Stage::MinP => {
                let least = left[0].1 + f64::from(params.min_p).ln();
                if left.iter().any(|&(_, logit)| (logit - least).abs() < 1e-6) {
                    return None;
                }
                left.retain(|&(_, logit)| logit > least);
            }
            Stage::Temperature => {
                left.iter_mut().for_each(|(_, logit)| *logit /= f64::from(params.temperature));
            }
            _ => {}
        }
    }
    Some(softmax(&left))
}

/// The token that is chosen, in plain words: masses as whole numbers, a full sort for every
/// threshold, and the draw among what is left in order of id, or best first after `top_k`.
fn plain(params: &SamplingParams, logits: &[f32], index: u32) -> Option<u32> {
    let mut left: Vec<Candidate> = (0..)
        .zip(logits)
        .map(|(id, &logit)| Candidate { id, logit })
        .filter(|c| c.logit.is_finite())
        .collect();
    let highest = |left: &[Candidate]| left.iter().fold(f32::NEG_INFINITY, |most, c| most.max(c.logit));
    let mass = |logit: f32, highest: f32| {
        (f64::from(exp::exp(logit - highest)) * 2f64.powi(43)).round_ties_even() as u128
    };
    for stage in &params.order {
        let most = highest(&left);
        if left.is_empty() {
            return None;
        }
        match stage {
            Stage::TopK if params.top_k > 0 => {
                left.sort_by(Candidate::order);
                left.truncate(params.top_k as usize);
            }
            Stage::TopP if params.top_p < 1.0 => {
                let mut best = left.clone();
                best.sort_by(Candidate::order);
                let total: u128 = best.iter().map(|c| mass(c.logit, most)).sum();
                let wanted = ((f64::from(params.top_p) * total as f64).ceil() as u128).clamp(1, total);
                let mut sum = 0;
                let count = best.iter().position(|c| {
                    sum += mass(c.logit, most);
                    sum >= wanted
                });
                best.truncate(count? + 1);
                let ids: std::collections::BTreeSet<u32> = best.iter().map(|c| c.id).collect();
                left.retain(|c| ids.contains(&c.id));
            }
            Stage::MinP if params.min_p > 0.0 => {
                let margin = libm::log(f64::from(params.min_p));
                left.retain(|c| f64::from(c.logit) - f64::from(most) >= margin);
            }
            Stage::Temperature => left.iter_mut().for_each(|c| c.logit /= params.temperature),
            _ => {}
        }
    }
    let most = highest(&left);
    let total: u128 = left.iter().map(|c| mass(c.logit, most)).sum();
    let mut place = (u128::from(random::draw(1, 0, index, 0)) * total) >> 64;
    let falls = |c: &&Candidate| {
        let mass = mass(c.logit, most);
        let falls = place < mass;
        place = place.saturating_sub(if falls { 0 } else { mass });
        falls
    };
    left.iter().find(falls).map(|c| c.id)
}

/// Rows of logits of many shapes and lengths: flat, peaked, with equal ones, with masked ones.
fn row(kind: u32, length: u32, seed: u64) -> Vec<f32> {
    let uniform = |id: u32, draw: u32| (random::draw(seed, kind, id, draw) >> 40) as f32 / 2f32.powi(24);
    let normal = |id| (0..12).map(|draw| uniform(id, draw)).sum::<f32>() - 6.0;
    let logit = |id: u32| match kind {
        0 => uniform(id, 0) * 8.0,
        1 => normal(id) * 3.0,
        2 => (normal(id) * 4.0).round() / 2.0,
        3 if uniform(id, 20) < 0.3 => f32::NEG_INFINITY,
        3 => normal(id) * 10.0 - 300.0,
        _ => {
            if id % 97 == 5 {
                12.0 + uniform(id, 0)
            } else {
                normal(id)
            }
        }
    };
    (0..length).map(logit).collect()
}

#[test]
fn chosen_tokens_are_those_of_the_plain_rules() {
    let mut chosen = std::collections::BTreeSet::new();
    for case in 0..600u32 {
        let number = |draw| random::draw(9, case, 0, draw);
        let pick = |draw, choices: &[f32]| choices[number(draw) as usize % choices.len()];
        let length = 1 + number(0) as u32 % [40, 1100, 5000][case as usize % 3];
        let logits = row(case % 5, length, u64::from(case));
        let mut order = Stage::ALL.to_vec();
        order.rotate_left(number(1) as usize % 5);
        let params = SamplingParams {
            temperature: pick(2, &[1.0, 1.0, 0.8, 1.7, 0.1]),
            top_k: pick(3, &[0.0, 0.0, 0.0, 40.0, 1000.0]) as u32,
            top_p: pick(4, &[1.0, 0.95, 0.95, 0.5, 0.999, 0.0]),
            min_p: pick(5, &[0.0, 0.0, 0.05, 0.05, 1.0, 1e-9]),
            order,
            ..SamplingParams::default()
        };
        for index in 0..5 {
            let Some(expected) = plain(&params, &logits, index) else { continue };
            assert_eq!(choose(&params, &logits, &[], index), Ok(expected), "case {case}: {params:?}");
            chosen.insert(expected);
        }
    }
    assert!(chosen.len() > 300, "{}", chosen.len());
}

fn params() -> impl Strategy<Value = SamplingParams> {
    let order = Just(Stage::ALL.to_vec()).prop_shuffle();
    let maybe = |range: std::ops::Range<f32>, off: f32| prop_oneof![Just(off), range];
    let narrowing = (maybe(0.1..3.0, 1.0), 0..12u32, maybe(0.0..1.0, 1.0), maybe(0.0..1.0, 0.0));
    let penalties = (maybe(0.5..2.0, 1.0), -1..8i32, maybe(-1.0..1.0, 0.0), maybe(-1.0..1.0, 0.0));
    let bias = prop::collection::vec((0..2u32, -3.0..3.0f32), 0..2);
    (order, narrowing, penalties, bias).prop_map(|(order, narrowing, penalties, logit_bias)| {
        let (temperature, top_k, top_p, min_p) = narrowing;
        let (repeat_penalty, repeat_last_n, presence_penalty, frequency_penalty) = penalties;
        SamplingParams {
            temperature,
            top_k,
            top_p,
            min_p,
            repeat_penalty,
            repeat_last_n,
            presence_penalty,
            frequency_penalty,
            logit_bias,
            order,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn distributions_agree_with_f64(
        params in params(),
        logits in prop::collection::vec((-40..40i32).prop_map(|eighths| eighths as f32 / 8.0), 2..60),
        history in prop::collection::vec(0..60u32, 0..12),
    ) {
        let Some(expected) = reference(&params, &logits, &history) else { return Ok(()) };
        let found = distribution(&params, &logits, &history);
        prop_assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (id, probability) in expected {
            prop_assert!((found[&id] - probability).abs() < 1e-5, "{id}: {} {probability}", found[&id]);
        }
    }

    /// Evenly spaced draws fall on each token as often as it is probable.
    #[test]
    fn draws_follow_the_distribution(
        logits in prop::collection::vec(-6.0..6.0f32, 1..30),
        listed in any::<bool>(),
    ) {
        let mut scratch = Scratch::default();
        let mut candidates = Candidates::new(&mut scratch, &logits).unwrap();
        if listed {
            candidates.list();
        }
        let all: Vec<(u32, f64)> = (0..).zip(logits.iter().map(|&logit| f64::from(logit))).collect();
        let draws = 4096u32;
        let mut counts = BTreeMap::new();
        for draw in 0..draws {
            let id = candidates.draw(u64::from(draw) << 52).unwrap();
            *counts.entry(id).or_insert(0u32) += 1;
        }
        for (id, probability) in softmax(&all) {
            let count = f64::from(counts.get(&id).copied().unwrap_or(0));
            prop_assert!((count - probability * f64::from(draws)).abs() < 1.01, "{id}: {count} {probability}");
        }
    }

    #[test]
    fn the_best_are_found_in_any_order(
        logits in prop::collection::vec((0..50i32).prop_map(|value| value as f32), 1..2000),
        count in 1..300usize,
        ascending in any::<bool>(),
    ) {
        let mut logits = logits;
        if ascending {
            logits.sort_by(f32::total_cmp);
        }
        let mut expected: Vec<Candidate> =
            (0..).zip(&logits).map(|(id, &logit)| Candidate { id, logit }).collect();
        expected.sort_by(Candidate::order);
        expected.truncate(count);
        let mut scratch = Scratch::default();
        let mut candidates = Candidates::new(&mut scratch, &logits).unwrap();
        candidates.keep_best(count);
        let mut found = Vec::new();
        candidates.for_each(|candidate| found.push(candidate));
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn logprobs_agree_with_f64(logits in prop::collection::vec(-30.0..30.0f32, 1..400)) {
        let highest = logits.iter().fold(f32::NEG_INFINITY, |most, &logit| most.max(logit));
        let sum: f64 = logits.iter().map(|&logit| f64::from(logit - highest).exp()).sum();
        let softmax = LogSoftmax::of(&logits).unwrap();
        for &logit in &logits {
            let truth = f64::from(logit) - f64::from(highest) - sum.ln();
            prop_assert!((f64::from(softmax.logprob(logit)) - truth).abs() < 1e-5);
        }
    }
}

#[test]
fn temperature_zero_takes_the_best_and_the_lower_of_equals() {
    let greedy = SamplingParams::greedy();
    assert_eq!(choose(&greedy, &[0.0, 3.0, 3.0, 1.0], &[], 0), Ok(1));
    assert_eq!(choose(&greedy, &[f32::NEG_INFINITY, -5.0], &[], 0), Ok(1));
    let mut biased = SamplingParams { logit_bias: vec![(3, 2.5)], ..greedy.clone() };
    assert_eq!(choose(&biased, &[0.0, 3.0, 3.0, 1.0], &[], 0), Ok(3));
    biased.repeat_penalty = 2.0;
    assert_eq!(choose(&biased, &[0.0, 3.0, 3.0, 1.0], &[3, 1], 0), Ok(2));
    biased.order = vec![Stage::TopK, Stage::Penalties];
    assert_eq!(choose(&biased, &[0.0, 3.0, 3.0, 1.0], &[3, 1], 0), Ok(2));
}

#[test]
fn a_tiny_temperature_is_greedy_and_overflows_nowhere() {
    let params = SamplingParams { temperature: 1e-38, ..off() };
    for index in 0..50 {
        assert_eq!(choose(&params, &[0.0, 3.0, 2.999, -50.0], &[], index), Ok(1));
    }
}

#[test]
fn top_k_zero_is_off_and_top_p_zero_keeps_one() {
    let logits = [0.0; 50];
    let seen = |params: &SamplingParams| -> std::collections::BTreeSet<u32> {
        (0..500).map(|index| choose(params, &logits, &[], index).unwrap()).collect()
    };
    assert_eq!(seen(&off()).len(), 50);
    assert_eq!(seen(&SamplingParams { top_p: 0.0, ..off() }).len(), 1);
    assert_eq!(seen(&SamplingParams { top_p: 0.5, ..off() }), (0..25).collect());
    assert_eq!(seen(&SamplingParams { top_k: 3, ..off() }), [0, 1, 2].into());
    assert_eq!(seen(&SamplingParams { min_p: 1.0, ..off() }).len(), 50);
}

/// Whatever parameters that are valid do to logits, one token is chosen, and it is the one that
/// they make best.
#[test]
fn no_parameter_makes_logits_that_are_no_numbers() {
    let logits = [1.0, 2.0, -3.0, 0.0, 3.5];
    let (tiny, huge) = (f32::MIN_POSITIVE, f32::MAX);
    let cases: [(SamplingParams, u32); 7] = [
        (SamplingParams { repeat_penalty: tiny, ..off() }, 1),
        (SamplingParams { frequency_penalty: -huge, ..off() }, 0),
        (SamplingParams { presence_penalty: huge, frequency_penalty: -huge, ..off() }, 0),
        (SamplingParams { presence_penalty: -huge, frequency_penalty: -huge, ..off() }, 0),
        (SamplingParams { repeat_penalty: tiny, frequency_penalty: huge, ..off() }, 4),
        (SamplingParams { logit_bias: vec![(2, huge), (2, huge)], ..off() }, 2),
        (
            SamplingParams {
                logit_bias: vec![(0, -huge), (0, -huge), (0, huge)],
                repeat_penalty: tiny,
                ..off()
            },
            1,
        ),
    ];
    for (params, best) in cases {
        params.validate(logits.len()).unwrap();
        for params in [
            SamplingParams { temperature: 0.0, ..params.clone() },
            SamplingParams { top_k: 1, ..params.clone() },
            SamplingParams { top_p: 0.9, min_p: 0.01, temperature: 0.5, ..params.clone() },
            SamplingParams {
                top_p: 0.9,
                order: vec![Stage::Penalties, Stage::Temperature, Stage::TopP],
                ..params
            },
        ] {
            let chosen = choose(&params, &logits, &[0, 1, 0, 1, 0], 0);
            let is_drawn = params.temperature != 0.0 && params.top_k != 1;
            assert!(chosen == Ok(best) || is_drawn && chosen.is_ok(), "{params:?}: {chosen:?}");
        }
    }
}

#[test]
fn masked_tokens_are_never_chosen() {
    let sampler = Sampler::new(off(), 1, 0).with_masked([0, 2].into(), 3);
    let mut scratch = Scratch::default();
    let mut choose = |index| sampler.sample(&mut scratch, &[9.0, -9.0, 9.0], None, &[], index).unwrap();
    assert_eq!([choose(0), choose(1), choose(2)], [1; 3]);
    assert_ne!(choose(3), 1);
}

#[test]
fn nothing_to_choose_from_is_an_error() {
    let masked = [f32::NEG_INFINITY; 20];
    for params in [SamplingParams::greedy(), off(), SamplingParams::default()] {
        assert_eq!(choose(&params, &masked, &[], 0), Err(SampleError::AllMasked));
    }
    for bad in [f32::NAN, f32::INFINITY] {
        let mut logits = [0.0; 40];
        logits[35] = bad;
        for params in [SamplingParams::greedy(), off()] {
            let error = choose(&params, &logits, &[], 0).unwrap_err();
            assert!(matches!(error, SampleError::NotFinite { id: 35, .. }), "{error}");
        }
    }
}

#[test]
fn parameters_out_of_range_are_named() {
    let error = |change: fn(&mut SamplingParams)| {
        let mut params = SamplingParams::default();
        change(&mut params);
        params.validate(10).unwrap_err().to_string()
    };
    assert_eq!(error(|p| p.temperature = -0.1), "`temperature` is -0.1, but must be at least 0");
    assert_eq!(error(|p| p.temperature = f32::NAN), "`temperature` is NaN, but must be at least 0");
    assert_eq!(error(|p| p.temperature = f32::INFINITY), "`temperature` is inf, but must be at least 0");
    assert_eq!(error(|p| p.top_p = 1.1), "`top_p` is 1.1, but must be from 0 to 1");
    assert_eq!(error(|p| p.min_p = -1.0), "`min_p` is -1, but must be from 0 to 1");
    assert_eq!(error(|p| p.repeat_penalty = 0.0), "`repeat_penalty` is 0, but must be above 0");
    assert_eq!(error(|p| p.repeat_last_n = -2), "`repeat_last_n` is -2, but must be at least -1");
    let text = "`presence_penalty` is inf, but must be a finite number";
    assert_eq!(error(|p| p.presence_penalty = f32::INFINITY), text);
    let text = "`frequency_penalty` is NaN, but must be a finite number";
    assert_eq!(error(|p| p.frequency_penalty = f32::NAN), text);
    let text = "`logit_bias` names token 10, which is outside the vocabulary of 10 tokens";
    assert_eq!(error(|p| p.logit_bias = vec![(10, 0.0)]), text);
    assert_eq!(
        error(|p| p.logit_bias = vec![(1, f32::NAN)]),
        "`logit_bias` is NaN, but must be below infinity"
    );
    assert_eq!(error(|p| p.order = vec![Stage::TopK, Stage::TopK]), "`samplers` lists top_k twice");
    let text = "`samplers` names \"topk\", which is none of penalties, top_k, top_p, min_p, temperature";
    assert_eq!("topk".parse::<Stage>().unwrap_err().to_string(), text);
    assert!(Stage::ALL.iter().all(|stage| stage.name().parse() == Ok(*stage)));
    let banned = SamplingParams { logit_bias: vec![(1, f32::NEG_INFINITY)], ..SamplingParams::default() };
    assert_eq!(banned.validate(10), Ok(()));
}

#[test]
fn logprobs_are_finite_and_best_first() {
    let mut logits = [0.0f32; 70];
    logits[3] = f32::NEG_INFINITY;
    logits[9] = 2.0;
    logits[8] = 2.0;
    let softmax = LogSoftmax::of(&logits).unwrap();
    let mut scratch = Scratch::default();
    let reported = softmax.of_token(&mut scratch, &logits, 3, 3);
    assert_eq!(reported.logprob, FLOOR);
    assert_eq!(reported.top.iter().map(|top| top.id).collect::<Vec<_>>(), [8, 9, 0]);
    assert_eq!(softmax.top(&mut scratch, &logits, 70).len(), 69);
    assert!(softmax.top(&mut scratch, &logits, 0).is_empty());
    assert_eq!(LogSoftmax::of(&[f32::NEG_INFINITY; 3]), Err(SampleError::AllMasked));
    assert!(LogSoftmax::of(&[0.0, f32::NAN]).is_err());
}

#[test]
fn a_mask_is_as_good_as_logits_of_negative_infinity() {
    let mut scratch = Scratch::default();
    for (seed, size) in [(1, 70usize), (2, 257), (3, 4096)] {
        for share in [1, 2, 15, 17, 64, size] {
            let logits = row(1, size as u32, seed);
            let mut random = random::fresh_seed() | 1;
            let mut allowed = vec![0u32; size.div_ceil(32)];
            let mut masked = vec![f32::NEG_INFINITY; size];
            for id in 0..size {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if id == size / 2 || ((random >> 33) as usize).is_multiple_of(share) {
                    allowed[id / 32] |= 1 << (id % 32);
                    masked[id] = logits[id];
                }
            }
            let orders = [
                off(),
                SamplingParams::default(),
                SamplingParams::greedy(),
                SamplingParams { top_p: 0.7, repeat_penalty: 1.3, ..off() },
                SamplingParams { min_p: 0.1, logit_bias: vec![(3, 2.0), (size as u32 / 2, -1.0)], ..off() },
            ];
            for params in orders {
                let sampler = Sampler::new(params.clone(), seed, 0).with_masked([5, 6].into(), 3);
                for index in 0..6 {
                    let with_mask = sampler.sample(&mut scratch, &logits, Some(&allowed), &[1, 2, 3], index);
                    let without = sampler.sample(&mut scratch, &masked, None, &[1, 2, 3], index);
                    assert_eq!(with_mask, without, "{size} {share} {params:?}");
                }
            }
        }
    }
    let nothing = choose_allowed(&[1.0; 40], &[0, 0]);
    assert_eq!(nothing, Err(SampleError::AllMasked));
    let bad = choose_allowed(&[f32::NAN; 40], &[2, 0]);
    assert!(matches!(bad, Err(SampleError::NotFinite { .. })), "also where it is masked");
}

fn choose_allowed(logits: &[f32], allowed: &[u32]) -> Result<u32, SampleError> {
    Sampler::new(off(), 1, 0).sample(&mut Scratch::default(), logits, Some(allowed), &[], 0)
}

/// Prints how long a token of a large vocabulary takes, for logits that are uniform, which is the
/// worst case, and for logits as models give them: `cargo test -p minfer-engine -- --ignored
/// --nocapture speed`.
#[test]
#[ignore = "measures"]
fn speed_of_a_large_vocabulary() {
    let history: Vec<u32> = (0..64).collect();
    let cases = [
        ("default", SamplingParams::default()),
        ("greedy", SamplingParams::greedy()),
        ("penalised", SamplingParams { repeat_penalty: 1.1, ..SamplingParams::default() }),
        ("top_p alone", SamplingParams { top_p: 0.95, ..off() }),
        ("top_p, warm", SamplingParams { top_p: 0.95, temperature: 0.8, ..off() }),
        ("min_p alone", SamplingParams { min_p: 0.05, ..off() }),
        ("all off", off()),
    ];
    let mut scratch = Scratch::default();
    for (name, kind) in [("uniform", 0), ("normal", 1)] {
        let logits = row(kind, 262_144, 3);
        let mut best = |case: &str, run: &mut dyn FnMut(&mut Scratch, u32)| {
            let times = (0..50).map(|index| {
                let start = Instant::now();
                run(&mut scratch, index);
                start.elapsed()
            });
            let mut times: Vec<_> = times.collect();
            times.sort();
            println!("{name:8} {case:12} least {:?}, median {:?}", times[0], times[times.len() / 2]);
        };
        for (case, params) in &cases {
            let sampler = Sampler::new(params.clone(), 1, 0);
            best(case, &mut |scratch, index| {
                sampler.sample(scratch, &logits, None, &history, index).unwrap();
            });
        }
        for (case, share) in [("any allowed", 1), ("half allowed", 2), ("few allowed", 1000)] {
            let mut allowed = vec![0u32; logits.len() / 32];
            (0..logits.len()).step_by(share).for_each(|id| allowed[id / 32] |= 1 << (id % 32));
            let sampler = Sampler::new(SamplingParams::default(), 1, 0);
            best(case, &mut |scratch, index| {
                sampler.sample(scratch, &logits, Some(&allowed), &history, index).unwrap();
            });
        }
        best("logprobs", &mut |scratch, _| {
            LogSoftmax::of(&logits).unwrap().of_token(scratch, &logits, 0, 20);
        });
    }
}
