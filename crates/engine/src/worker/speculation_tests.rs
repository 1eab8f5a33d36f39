//! Guesses change nothing but the number of steps: whatever is guessed, and whatever happens
//! meanwhile.

use std::sync::atomic::{AtomicU64, Ordering};

use super::session_tests::{ID, shifting, turn};
use super::*;
use crate::constraint::{Ahead, Constraint, ConstraintError, TextState};
use crate::drafter::{Confidence, Draft};
use crate::request::Request;
use crate::sampler::SamplingParams;
use crate::test_model::{Answer, Bench, Shape, VOCAB, eloquent};

/// Guesses the true answers' tokens where a draw says so, else any token.
struct Oracle {
    answers: Arc<Vec<Vec<u32>>>,
    state: u64,
}

impl Drafter for Oracle {
    fn draft(&mut self, tokens: &[u32], most: usize) -> Option<Draft> {
        let mut draw = |bound: u64| {
            self.state =
                self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.state >> 33) % bound
        };
        let known = self.answers.iter().find(|answer| answer.starts_with(tokens));
        let most = most.min(1 + draw(6) as usize);
        let guess = |at: usize| known.and_then(|answer| answer.get(tokens.len() + at)).copied();
        let tokens: Vec<u32> = (0..most)
            .map(|at| match (guess(at), draw(4)) {
                (Some(token), 1..) => token,
                _ => draw(u64::from(VOCAB)) as u32,
            })
            .collect();
        let confidence = [Confidence::Short, Confidence::Medium, Confidence::Long][draw(3) as usize];
        Some(Draft { tokens, confidence })
    }
}

/// A bench that guesses, on a clock on which every step takes about as long.
fn guessing(bench: &mut Bench, answers: Vec<Vec<u32>>, seed: u64) {
    let (answers, next) = (Arc::new(answers), AtomicU64::new(seed * 1000));
    bench.worker.drafter = Some(Box::new(move || {
        let state = next.fetch_add(1, Ordering::Relaxed);
        Box::new(Oracle { answers: Arc::clone(&answers), state }) as _
    }));
    let ticks = AtomicU64::new(0);
    bench.worker.clock = Box::new(move || Duration::from_micros(ticks.fetch_add(1, Ordering::Relaxed)));
}

/// A request that draws, with everything that looks at earlier tokens.
fn drawn(seed: u32, tokens: u32) -> Request {
    let sampling = SamplingParams {
        temperature: 1.0,
        top_k: 20,
        repeat_penalty: 1.2,
        repeat_last_n: 64,
        presence_penalty: 0.3,
        ..SamplingParams::default()
    };
    let prompt: Vec<u32> = (0..20 + seed).map(|index| 30 + (index * seed) % 90).collect();
    Request {
        session: None,
        seed: Some(7),
        sampling,
        logprobs: Some(2),
        min_tokens: 4,
        ..turn(&prompt, tokens)
    }
}

fn requests() -> Vec<Request> {
    let mut requests: Vec<Request> = (1..6).map(|seed| drawn(seed, 30 + seed)).collect();
    requests[1].ignore_eos = false;
    requests.push(Request { session: None, ..turn(&[5; 33], 40) });
    requests
}

/// Everything that a client sees but times.
fn seen(answer: &Answer) -> String {
    let events = answer.events.iter().filter_map(|event| match event {
        Event::Finished(finished) => Some(format!("{:?} {:?}", finished.reason, finished.usage)),
        Event::Token(token) => Some(format!("{token:?}")),
        Event::Progress(_) => None,
        other => Some(format!("{other:?}")),
    });
    events.collect::<Vec<_>>().join("\n")
}

#[test]
fn guesses_change_no_answer_under_mates_windows_and_preemption() {
    for (window, blocks, preempts) in [(None, 64, false), (Some(20), 64, false), (None, 11, true)] {
        let config = EngineConfig { n_ctx: 128, n_batch: 24, prefix_cache: false, ..Shape::default().config };
        let shape = Shape { config, blocks, window, head_rows: 3, ..Shape::default() };
        let alone: Vec<Answer> = requests()
            .into_iter()
            .map(|request| Bench::new(&eloquent(), Shape { blocks: 64, ..shape }).answer(request))
            .collect();
        let answers: Vec<Vec<u32>> = requests()
            .iter()
            .zip(&alone)
            .map(|(request, answer)| [&request.prompt[..], &answer.ids()].concat())
            .collect();
        let (mut guessed, mut right, mut preemptions) = (0, 0, 0);
        for seed in 0..8 {
            let mut bench = Bench::new(&eloquent(), shape);
            guessing(&mut bench, answers.clone(), seed);
            let events: Vec<_> =
                requests().into_iter().map(|request| bench.submit(request).unwrap().1).collect();
            bench.drain();
            for (events, alone) in events.iter().zip(&alone) {
                assert_eq!(seen(&Answer::of(events)), seen(alone), "seed {seed}, window {window:?}");
            }
            let stats = bench.stats();
            (guessed, right) = (guessed + stats.guessed_tokens, right + stats.right_guesses);
            preemptions += stats.preemptions;
            let generated: u64 = alone.iter().map(|answer| answer.ids().len() as u64).sum();
            assert_eq!(stats.generated_tokens, generated);
            if !preempts {
                let fed: usize = answers.iter().map(|answer| answer.len() - 1).sum();
                assert_eq!(stats.tokens_fed, fed as u64, "wrong guesses are not fed tokens");
            }
            bench.assert_idle();
        }
        assert!(right > 100 && guessed > right + 100, "{right} of {guessed}");
        assert_eq!(preemptions > 0, preempts);
    }
}

#[test]
fn guesses_change_no_conversation_that_shifts_ends_early_or_is_saved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    let config = EngineConfig { n_ctx: 64, n_batch: 24, ..Shape::default().config };
    let shape = Shape { config, head_rows: 16, ..Shape::default() };
    let talk = |bench: &mut Bench| {
        bench.worker.open_session(ID, None);
        let mut tokens: Vec<u32> = (10..30).collect();
        let mut all = Vec::new();
        for (turn_number, length) in [20, 90, 9].into_iter().enumerate() {
            let stop = if turn_number == 2 { vec!["never".to_owned()] } else { Vec::new() };
            let answer = bench.answer(Request { stop, ..shifting(turn(&tokens, length)) });
            tokens.extend(answer.ids());
            tokens.push(70 + turn_number as u32);
            all.push(seen(&answer));
            let known = bench.worker.session_info(ID).unwrap();
            all.push(format!("{known:?}"));
        }
        bench.save(ID, &path, Vec::new()).unwrap();
        (tokens, all, std::fs::read(&path).unwrap())
    };
    let (tokens, expected, file) = talk(&mut Bench::new(&eloquent(), shape));
    let mut right = 0;
    for seed in 0..8 {
        let mut bench = Bench::new(&eloquent(), shape);
        guessing(&mut bench, vec![tokens.clone()], seed);
        let (_, found, saved) = talk(&mut bench);
        assert_eq!(found, expected, "seed {seed}");
        assert!(saved == file, "the saved rows are the same");
        right += bench.stats().right_guesses;
    }
    assert!(right > 50, "{right}");
}

/// A stop string in the midst of right guesses ends the answer there.
#[test]
fn an_answer_ends_where_it_would_without_guesses() {
    let shape = Shape::default();
    let whole = Bench::new(&eloquent(), shape).answer(Request { session: None, ..turn(&[9; 10], 40) });
    let tokens = [&[9; 10][..], &whole.ids()].concat();
    let texts: Vec<String> =
        whole.tokens().iter().map(|token| token.text.clone()).filter(|text| text.len() == 1).collect();
    assert!(texts.len() > 3, "{texts:?}");
    let mut right = 0;
    for (seed, stop) in texts.iter().enumerate() {
        let request = || Request { session: None, stop: vec![stop.clone()], ..turn(&[9; 10], 40) };
        let expected = Bench::new(&eloquent(), shape).answer(request());
        let mut bench = Bench::new(&eloquent(), shape);
        guessing(&mut bench, vec![tokens.clone()], seed as u64);
        assert_eq!(seen(&bench.answer(request())), seen(&expected));
        right += bench.stats().right_guesses;
        bench.assert_idle();
    }
    assert!(right > 0);
}

/// The product's own drafter, on an answer that repeats itself, takes fewer steps than tokens.
#[test]
fn repeated_text_takes_few_steps() {
    let config = EngineConfig { speculation: true, n_ctx: 512, n_batch: 32, ..Shape::default().config };
    let answer = "the same words again and again; ".repeat(6);
    let backend = crate::test_model::scripted(40, &answer);
    let prompt: Vec<u32> =
        b"the same words again and again; and more".iter().map(|&byte| u32::from(byte)).collect();
    let mut bench = Bench::new(&backend, Shape { config, head_rows: 16, ..Shape::default() });
    let ticks = AtomicU64::new(0);
    bench.worker.clock = Box::new(move || Duration::from_micros(ticks.fetch_add(1, Ordering::Relaxed)));
    assert_eq!(bench.answer(crate::test_model::greedy(&prompt)).text(), answer);
    let stats = bench.stats();
    assert!(stats.steps * 5 < answer.len() as u64, "{stats:?}");
    assert_eq!(stats.tokens_fed, (40 + answer.len()) as u64);
}

/// Allows three bytes that depend on all tokens so far, or one; is complete after `length`.
struct Narrow {
    taken: Vec<u32>,
    length: usize,
    /// Panics when so many tokens are taken back.
    panics_at: Option<usize>,
}

fn choices(taken: &[u32]) -> Vec<u32> {
    let sum = taken.iter().fold(taken.len() as u32, |sum, &id| sum.wrapping_mul(31).wrapping_add(id));
    let count = if sum % 4 == 0 { 3 } else { 1 };
    (0..count).map(|index| (sum / 4 + 17 * index) % 250).collect()
}

impl Constraint for Narrow {
    fn mask(&mut self, allowed: &mut [u32]) -> Result<(), ConstraintError> {
        choices(&self.taken).iter().for_each(|id| allowed[*id as usize / 32] |= 1 << (id % 32));
        Ok(())
    }

    fn commit(&mut self, token: u32) -> Result<TextState, ConstraintError> {
        assert!(choices(&self.taken).contains(&token), "{token} was not allowed");
        self.taken.push(token);
        Ok(if self.taken.len() == self.length { TextState::Complete } else { TextState::Open })
    }

    fn can_end(&mut self) -> bool {
        false
    }

    fn ahead(&mut self) -> Option<&mut dyn Ahead> {
        Some(self)
    }
}

impl Ahead for Narrow {
    fn take_back(&mut self, tokens: usize) -> Result<(), ConstraintError> {
        assert_ne!(Some(tokens), self.panics_at, "the constraint panics");
        self.taken.truncate(self.taken.len() - tokens);
        Ok(())
    }

    /// Now and then a token that is not forced, or not even allowed.
    fn forced(&mut self) -> Vec<u32> {
        let mut tokens = self.taken.clone();
        for step in 0..self.taken.len() % 7 {
            tokens.push(choices(&tokens)[0] + u32::from(step == 5));
        }
        tokens.split_off(self.taken.len())
    }
}

/// Forced tokens and guessed ones, right, wrong and not allowed.
#[test]
fn guesses_change_no_constrained_answer() {
    let shape = Shape { head_rows: 5, ..Shape::default() };
    let requests: Vec<Request> = (1..4).map(|seed| drawn(seed, 60)).collect();
    let submit = |bench: &mut Bench, request: &Request, panics_at| {
        let (sink, events) = crate::Events::channel();
        let constraint = Narrow { taken: Vec::new(), length: 40 + request.prompt.len() / 2, panics_at };
        bench
            .submit_with(crate::Submission::new(request.clone(), sink).constraint(Box::new(constraint)))
            .unwrap();
        events
    };
    let alone: Vec<Answer> = requests
        .iter()
        .map(|request| {
            let mut bench = Bench::new(&eloquent(), shape);
            let events = submit(&mut bench, request, None);
            bench.drain();
            Answer::of(&events)
        })
        .collect();
    let answers: Vec<Vec<u32>> = requests
        .iter()
        .zip(&alone)
        .map(|(request, answer)| [&request.prompt[..], &answer.ids()].concat())
        .collect();
    let mut right = 0;
    for seed in 0..8 {
        let mut bench = Bench::new(&eloquent(), shape);
        guessing(&mut bench, answers.clone(), seed);
        let events: Vec<_> = requests.iter().map(|request| submit(&mut bench, request, None)).collect();
        bench.drain();
        for (events, alone) in events.iter().zip(&alone) {
            assert_eq!(seen(&Answer::of(events)), seen(alone), "seed {seed}");
        }
        right += bench.stats().right_guesses;
        bench.assert_idle();
    }
    assert!(right > 300, "{right}");
    // A fault while guesses are taken back is the request's own.
    let mut bench = Bench::new(&eloquent(), shape);
    guessing(&mut bench, answers, 3);
    let events = [Some(1), None].map(|panics_at| submit(&mut bench, &requests[0], panics_at));
    bench.drain();
    let [failed, sound] = events.map(|events| Answer::of(&events));
    assert!(matches!(failed.last(), Event::Failed(EngineError::Panicked(_))), "{:?}", failed.last());
    assert_eq!(seen(&sound), seen(&alone[0]));
    bench.assert_idle();
}
