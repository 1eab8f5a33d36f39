//! Steps of an engine on real arithmetic: how a prompt is divided among them, what fails in one of
//! them and which rows are kept change no bit of any other answer.

#[path = "common/engine.rs"]
mod common;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use common::{Bits, Way, ask, bits, read, request, synthetic_file, tokens};
use minfer::ModelFile;
use minfer::engine::{Engine, EngineError, Event, EventSink, Events, ModelExecutor, Request};
use minfer_testkit::fetched;
use minfer_testkit::synthetic::Family;

/// Passes events on, and panics at one of them or when it is asked whether anybody listens.
struct Panicking {
    /// Events before the panic.
    at: usize,
    asked: bool,
    sent: Arc<Mutex<usize>>,
    events: mpsc::Sender<Event>,
}

impl EventSink for Panicking {
    fn send(&mut self, event: Event) -> bool {
        let mut sent = self.sent.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *sent += 1;
        let panics = !self.asked && *sent == self.at + 1;
        drop(sent);
        assert!(!panics, "a sink that panics");
        self.events.send(event).is_ok()
    }

    fn is_closed(&self) -> bool {
        let sent = *self.sent.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        assert!(!self.asked || sent < self.at, "a sink that panics when it is asked");
        false
    }
}

/// A stream of its own prompt and length for each of `count` neighbours.
fn neighbour(vocabulary: u32, seed: u32) -> Request {
    Request { max_tokens: Some(20 + seed), ..request(&tokens(vocabulary, 40 + 7 * seed, seed)) }
}

fn submit_all(engine: &Engine, requests: &[Request]) -> Vec<Events> {
    requests.iter().map(|request| engine.submit(request.clone()).expect("accepted").1).collect()
}

/// Requests whose sinks panic among three that answer.
fn panicking_sinks(name: &str, file: &ModelFile, vocabulary: u32, length: u32) {
    let engine = Way { step_target: 2.0, ..Way::plain(1024) }.engine(file);
    let mates: Vec<Request> = (1..4).map(|seed| neighbour(vocabulary, seed)).collect();
    let alone: Vec<Bits> = mates.iter().map(|mate| ask(&engine, mate.clone()).0).collect();
    let sick = Request { max_tokens: Some(12), ..request(&tokens(vocabulary, length, 9)) };
    let expected = ask(&engine, sick.clone()).0;
    let mut failed = 0;
    for (at, asked) in [(0, false), (3, false), (1, true), (5, true)] {
        let (sender, events) = mpsc::channel();
        let sink = Panicking { at, asked, sent: Arc::default(), events: sender };
        let together = submit_all(&engine, &mates[..2]);
        engine.submit_to(Request { reuse: false, ..sick.clone() }, sink).expect("accepted");
        let last = submit_all(&engine, &mates[2..]);
        let answers: Vec<Bits> = together.iter().chain(&last).map(|events| read(events).0).collect();
        assert_eq!(answers, alone, "{name}: neighbours of a sink that panics");
        // The sender goes with the sink: this ends when the engine is done with it.
        let ends: Vec<Event> = events.iter().filter(Event::is_terminal).collect();
        assert!(matches!(&ends[..], [Event::Failed(EngineError::Panicked(_))]), "{name}: {ends:?}");
        failed += 1;
        assert_eq!(engine.stats().failed, failed, "{name}");
        assert_eq!(ask(&engine, sick.clone()).0, expected, "{name}: the next request");
    }
    assert!(!engine.has_stopped());
    assert_eq!(engine.stats().kv.blocks_live, 0);
}

/// Four streams decode while a long prompt arrives; its pieces are sized by time.
fn sized_by_time(name: &str, file: &ModelFile, vocabulary: u32, length: u32) {
    let way = Way { n_slots: 5, n_ctx: length + 400, ..Way::plain(0) };
    let long = request(&tokens(vocabulary, length, 11));
    let mates: Vec<Request> = (0..4)
        .map(|seed| Request { max_tokens: Some(200 + seed), ..request(&tokens(vocabulary, 20 + seed, seed)) })
        .collect();
    let run = |step_target: f32, together: bool| {
        let engine = Way { step_target, ..way }.engine(file);
        let mut answers = Vec::new();
        if together {
            let streams = submit_all(&engine, &mates);
            // The streams decode when the prompt comes.
            let first: Vec<Vec<Event>> = streams.iter().map(until_token).collect();
            let prompt = engine.submit(long.clone()).expect("accepted").1;
            for (mut first, stream) in first.into_iter().map(Vec::into_iter).zip(&streams) {
                answers.push(bits(|| first.next().unwrap_or_else(|| stream.recv().expect("an event"))).0);
            }
            answers.push(read(&prompt).0);
        } else {
            answers.extend(mates.iter().chain([&long]).map(|request| ask(&engine, request.clone()).0));
        }
        (answers, engine.stats().steps)
    };
    let (alone, _) = run(0.0, false);
    let (by_tokens, _) = run(0.0, true);
    let (by_time, steps) = run(1.01, true);
    assert_eq!(by_tokens, alone, "{name}: pieces of the whole step");
    assert_eq!(by_time, alone, "{name}: pieces sized by time");
    // With a target that leaves no time a step feeds one token of the prompt, as long as a stream
    // decodes.
    assert!(steps >= 200, "{name}: {steps} steps");
}

/// Events up to and with the first token.
fn until_token(events: &Events) -> Vec<Event> {
    let mut seen = Vec::new();
    while !matches!(seen.last(), Some(Event::Token(_))) {
        seen.push(events.recv().expect("an event"));
    }
    seen
}

/// Without a prefix cache every token is fed again, and the answers are the same.
fn without_a_prefix_cache(name: &str, file: &ModelFile, vocabulary: u32) {
    let prompt = tokens(vocabulary, 200, 4);
    let mut answers = Vec::new();
    for (prefix_cache, reused) in [(true, 199), (false, 0)] {
        let engine = Way { prefix_cache, ..Way::plain(512) }.engine(file);
        answers.push(ask(&engine, request(&prompt)).0);
        let (again, finished) = ask(&engine, request(&prompt));
        answers.push(again);
        let stats = engine.stats();
        assert_eq!((finished.usage.reused, stats.reused_tokens), (reused, u64::from(reused)), "{name}");
        assert_eq!(stats.kv.blocks_cached > 0, prefix_cache, "{name}");
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{name}");
}

/// Rows are sampled on the threads of the CPU's pool.
#[test]
fn jobs_run_once_each_on_several_threads() {
    let loaded = Way::plain(64).load(&synthetic_file(Family::Llama));
    let runs: Vec<AtomicU32> = (0..64).map(|_| AtomicU32::new(0)).collect();
    let threads = Mutex::new(HashSet::new());
    let job = |index: usize| {
        runs[index].fetch_add(1, Ordering::Relaxed);
        threads.lock().unwrap().insert(std::thread::current().id());
        std::thread::sleep(Duration::from_millis(1));
    };
    loaded.executor().run_jobs(64, &job);
    assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1), "{runs:?}");
    assert_eq!(threads.lock().unwrap().len(), 2);
    let panics = || loaded.executor().run_jobs(4, &|index| assert_ne!(index, 2));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
    loaded.executor().run_jobs(64, &job);
    assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 2), "{runs:?}");
}

#[test]
fn a_panicking_sink_fails_its_own_request() {
    for family in [Family::Llama, Family::Gemma3] {
        panicking_sinks(&format!("{family:?}"), &synthetic_file(family), 250, 300);
    }
}

#[test]
fn a_piece_of_any_size_gives_the_same_bits() {
    for family in [Family::Llama, Family::Gemma3] {
        sized_by_time(&format!("{family:?}"), &synthetic_file(family), 250, 500);
    }
}

#[test]
fn the_prefix_cache_changes_counts_and_no_bit() {
    for family in [Family::Llama, Family::Gemma3] {
        without_a_prefix_cache(&format!("{family:?}"), &synthetic_file(family), 250);
    }
}

fn real(name: &str) {
    let file = ModelFile::open(&fetched::model(&format!("{name}.gguf"))).expect("the test model");
    panicking_sinks(name, &file, 40_000, 300);
    sized_by_time(name, &file, 40_000, 600);
    without_a_prefix_cache(name, &file, 40_000);
}

#[test]
#[ignore = "reads a real model: run by `cargo xtask test`"]
fn smollm2() {
    real("smollm2-135m-instruct-q4_1");
}

#[test]
#[ignore = "reads a real model: run by `cargo xtask test`"]
fn gemma3() {
    real("gemma3-270m-q4_k_m");
}
