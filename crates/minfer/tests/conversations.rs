//! Conversations on real arithmetic: rows that were reused, shared, saved and restored, given up
//! and computed again, or kept by a context shift give the same bits as rows that were computed
//! alone.

#[path = "common/engine.rs"]
mod common;

use std::sync::{Arc, Mutex, mpsc};

use common::{ANSWER, Bits, Way, ask, read, request, synthetic_file, tokens};
use minfer::ModelFile;
use minfer::cpu::Isa;
use minfer::engine::event::Finished;
use minfer::engine::{ContextShift, Engine, Event, EventSink, Events, Request};
use minfer::graph::KvLayout;
use minfer_testkit::fetched;
use minfer_testkit::synthetic::Family;

/// Every way to come by a prompt's rows, `length` of them.
fn check(name: &str, file: &ModelFile, vocabulary: u32, length: u32) {
    let way = Way::plain(length + 64);
    let engine = way.engine(file);
    let prompt = tokens(vocabulary, length, 0);
    let (expected, finished) = ask(&engine, Request { reuse: false, ..request(&prompt) });
    assert_eq!((finished.usage.cached, expected.len()), (0, ANSWER as usize), "{name}");

    // Another prompt with the same beginning, cut inside of a block.
    let cut = length * 2 / 3 + 5;
    let other = [&prompt[..cut as usize], &tokens(vocabulary, 9, 3)].concat();
    ask(&engine, request(&other));
    let (bits, finished) = ask(&engine, request(&prompt));
    assert!(finished.usage.cached >= cut, "{name}: {} of {cut} reused", finished.usage.cached);
    assert_eq!(bits, expected, "{name}: reused");

    // Four at once: two that share, two of their own.
    let mates = [other, tokens(vocabulary, length / 3, 1), tokens(vocabulary, length / 2, 2)];
    let alone: Vec<Bits> =
        mates.iter().map(|mate| ask(&engine, Request { reuse: false, ..request(mate) }).0).collect();
    let fresh = way.engine(file);
    let together: Vec<Events> = mates
        .iter()
        .chain([&prompt])
        .map(|prompt| fresh.submit(request(prompt)).expect("accepted").1)
        .collect();
    let together: Vec<Bits> = together.iter().map(|events| read(events).0).collect();
    assert_eq!(together[..3], alone, "{name}: mates");
    assert_eq!(together[3], expected, "{name}: among mates");

    restored(name, file, way, &prompt, &expected);
}

/// A conversation that is saved, and goes on in an engine of another layout, block size and
/// context.
fn restored(name: &str, file: &ModelFile, way: Way, prompt: &[u32], expected: &Bits) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.session");
    let (said, rest) = prompt.split_at(prompt.len() - 20);
    let first = way.engine(file);
    let session = first.open_session().expect("an engine");
    ask(&first, Request { session: Some(session), max_tokens: Some(0), ..request(said) });
    first.save_session(session, &path, Vec::new()).expect("saved");
    for (layout, block_tokens) in [(KvLayout::HeadMajor, 16), (KvLayout::SeqMajor, 128)] {
        let elsewhere = Way { layout, block_tokens, n_ctx: way.n_ctx + 100, threads: 1, ..way }.engine(file);
        let (session, _) = elsewhere.load_session(&path).expect("loaded");
        let (bits, finished) = ask(&elsewhere, Request { session: Some(session), ..request(prompt) });
        assert_eq!(finished.usage.cached as usize, said.len(), "{name}: nothing is computed again");
        assert_eq!(elsewhere.stats().tokens_fed, (rest.len() + ANSWER as usize - 1) as u64);
        assert_eq!(&bits, expected, "{name}: restored as {layout}, blocks of {block_tokens}");
    }
}

#[test]
fn rows_are_the_same_however_they_are_come_by() {
    for family in [Family::Llama, Family::Qwen2, Family::Gemma3] {
        check(&format!("{family:?}"), &synthetic_file(family), 250, 300);
    }
}

fn real_file(name: &str) -> ModelFile {
    ModelFile::open(&fetched::model(&format!("{name}.gguf"))).expect("the test model")
}

fn real(name: &str, length: u32) {
    let file = real_file(name);
    check(name, &file, 40_000, length);
    gives_way(name, &file, 40_000, Way { block_tokens: 16, ..Way::plain(96) }, 40, 50);
}

#[test]
#[ignore = "reads a real model: run by `cargo xtask test`"]
fn smollm2() {
    real("smollm2-135m-instruct-q4_1", 200);
}

#[test]
#[ignore = "reads a real model: run by `cargo xtask test`"]
fn smollm2_conversations_beside_others() {
    let file = real_file("smollm2-135m-instruct-q4_1");
    waits_for_nobody("smollm2", &file, 40_000);
    idle_gives_way("smollm2", &file, 40_000);
}

#[test]
#[ignore = "reads a real model: run by `cargo xtask test`"]
fn qwen_coder() {
    real("qwen2.5-coder-0.5b-instruct-q4_k_m", 150);
}

/// 600 tokens pass its window of 512.
#[test]
#[ignore = "reads a real model: run by `cargo xtask test`"]
fn gemma3() {
    real("gemma3-270m-q4_k_m", 600);
}

#[test]
#[ignore = "reads a real model: run by `cargo xtask test`"]
fn gemma3_cut_behind_its_window() {
    cut_behind_the_window("gemma3", &real_file("gemma3-270m-q4_k_m"), 40_000);
}

#[test]
#[ignore = "reads a real model: run by `cargo xtask test`"]
fn a_long_beginning_of_eight_requests_is_computed_and_stored_once() {
    let file = real_file("smollm2-135m-instruct-q4_1");
    let engine = Way { n_slots: 8, ..Way::plain(2100) }.engine(&file);
    let system = tokens(40_000, 2000, 0);
    let prompt = |user: u32| [&system[..], &tokens(40_000, 20, user + 1)].concat();
    let ask = |user: u32| engine.submit(request(&prompt(user))).expect("accepted").1;
    let events: Vec<Events> = (0..8).map(ask).collect();
    let finished: Vec<Finished> = events.iter().map(|events| read(events).1).collect();
    let fed: Vec<u32> =
        finished.iter().map(|finished| finished.usage.prompt - finished.usage.cached).collect();
    let seconds = |finished: &Finished| finished.timings.prompt.as_secs_f64();
    let first = seconds(&finished[0]);
    let slowest = finished[1..].iter().map(seconds).fold(0.0, f64::max);
    println!("prompt tokens fed: {fed:?}; first {first:.3} s, then, all in one step, {slowest:.3} s");
    assert_eq!(fed, [2020, 20, 20, 20, 20, 20, 20, 20]);
    let stats = engine.stats();
    assert_eq!(stats.tokens_fed, 2000 + 8 * (20 + u64::from(ANSWER) - 1));
    // The whole blocks of the beginning once; each request fills one more, and holds the
    // beginning's last rows in it.
    let blocks = 2000 / 64 + 8;
    let rows = stats.kv.blocks_live + stats.kv.blocks_cached;
    assert!(rows <= blocks + 1, "{rows} blocks, {blocks} expected");
    // One step behind the first prompt takes all seven others, and the head only rows whose logits
    // are read.
    assert_eq!((stats.steps, stats.head_runs), (8 + u64::from(ANSWER), 1 + u64::from(ANSWER)));
    let later = (8..15).map(|user| read(&ask(user)).1);
    let mut alone: Vec<f64> = later
        .map(|finished| {
            assert_eq!(finished.usage.prompt - finished.usage.cached, 20);
            seconds(&finished)
        })
        .collect();
    alone.sort_by(f64::total_cmp);
    println!("seven one after the other: median {:.3} s, {:.0} times shorter", alone[3], first / alone[3]);
    assert!(alone[3] * 10.0 <= first, "{alone:?} after {first}");
}

/// Four that are asked together in room for two say what each says alone.
fn gives_way(name: &str, file: &ModelFile, vocabulary: u32, roomy: Way, prompt: u32, answer: u32) {
    let prompts: Vec<Vec<u32>> = (0..4).map(|seed| tokens(vocabulary, prompt, seed)).collect();
    let long = |prompt: &[u32]| Request { max_tokens: Some(answer), reuse: false, ..request(prompt) };
    let engine = roomy.engine(file);
    let alone: Vec<Bits> = prompts.iter().map(|prompt| ask(&engine, long(prompt)).0).collect();
    let one = engine.stats().kv_reserved_bytes / 4;
    let tight = Way { kv_memory: Some(2 * one), ..roomy }.engine(file);
    let events: Vec<Events> =
        prompts.iter().map(|prompt| tight.submit(long(prompt)).expect("accepted").1).collect();
    let crowded: Vec<Bits> = events.iter().map(|events| read(events).0).collect();
    let (stats, once) = (tight.stats(), 4 * u64::from(prompt + answer - 1));
    assert!(stats.preemptions > 0 && stats.tokens_fed > once, "{name}: {stats:?}");
    assert_eq!((engine.stats().preemptions, engine.stats().tokens_fed), (0, once));
    assert_eq!(crowded, alone, "{name}");
}

#[test]
fn a_sequence_that_gave_its_memory_to_an_older_one_says_the_same() {
    let file = synthetic_file(Family::Qwen2);
    gives_way("qwen2", &file, 250, Way::plain(256), 60, 150);
}

#[test]
fn a_shifted_conversation_has_one_answer_too() {
    for family in [Family::Llama, Family::Gemma3] {
        let file = synthetic_file(family);
        let plain = Way { context_shift: true, ..Way::plain(128) };
        let long = Request {
            max_tokens: Some(400),
            context_shift: Some(ContextShift { keep: 9 }),
            ..request(&tokens(250, 70, 0))
        };
        let engine = plain.engine(&file);
        let (expected, finished) = ask(&engine, long.clone());
        assert!(engine.stats().shifts >= 5 && finished.usage.removed > 200);
        let others = [
            Way { threads: 1, ..plain },
            Way { threads: 3, block_tokens: 16, layout: KvLayout::SeqMajor, ..plain },
            Way { isa: Isa::Scalar, layout: KvLayout::HeadMajor, ..plain },
            Way { n_batch: 7, block_tokens: 32, ..plain },
        ];
        for way in others {
            assert_eq!(ask(&way.engine(&file), long.clone()).0, expected, "{family:?}");
        }
    }
}

/// A shifted conversation is cut to more tokens than the context has, behind what its window still
/// holds: it says what the tokens that it has not forgotten say alone, and never has more positions
/// than the context.
fn cut_behind_the_window(name: &str, file: &ModelFile, vocabulary: u32) {
    let way = Way { context_shift: true, ..Way::plain(1100) };
    let engine = way.engine(file);
    let session = engine.open_session().expect("an engine");
    let turn = |prompt: &[u32], max_tokens| Request {
        session: Some(session),
        max_tokens: Some(max_tokens),
        context_shift: Some(ContextShift { keep: 9 }),
        ..request(prompt)
    };
    let tokens = tokens(vocabulary, 1450, 0);
    ask(&engine, turn(&tokens[..1050], 0));
    ask(&engine, turn(&tokens, 0));
    let known = engine.session(session).expect("a conversation");
    assert_eq!((known.rows, known.removed), (930, 520), "{name}: half of what is not kept");
    let (again, finished) = ask(&engine, turn(&tokens[..1200], ANSWER));
    assert_eq!((finished.usage.removed, finished.usage.reused), (520, 9), "{name}: the kept rows are known");
    let left = [&tokens[..9], &tokens[529..1200]].concat();
    let (expected, _) = ask(&Way::plain(1100).engine(file), request(&left));
    assert_eq!(again, expected, "{name}");
    // Without a shift the context ends it.
    let (long, _) = ask(&engine, Request { context_shift: None, ..turn(&tokens[..1190], 2000) });
    assert_eq!(long.len(), 1100 - (1190 - 520), "{name}");
}

/// The answers to two requests, which end in this order.
fn in_order_of_ending(engine: &Engine, requests: [Request; 2], order: [usize; 2], name: &str) -> [Bits; 2] {
    let endings = Arc::default();
    let events = requests.each_ref().map(|_| mpsc::channel());
    let (submitted, wait) = mpsc::channel::<()>();
    let mut wait = Some(wait);
    for (index, request) in requests.into_iter().enumerate() {
        let endings = Arc::clone(&endings);
        let sink = Noted { index, endings, events: events[index].0.clone(), wait: wait.take() };
        engine.submit_to(request, sink).expect("accepted");
    }
    drop(submitted);
    let answers = events.map(|(_, events)| common::bits(|| events.recv().expect("an event")).0);
    assert_eq!(*endings.lock().unwrap(), order, "{name}: the first one runs as long as the second");
    answers
}

/// Passes events on and notes when the last one came. With the first one it waits, and the engine
/// with it, until the other request has been submitted.
struct Noted {
    index: usize,
    endings: Arc<Mutex<Vec<usize>>>,
    events: mpsc::Sender<Event>,
    wait: Option<mpsc::Receiver<()>>,
}

impl EventSink for Noted {
    fn send(&mut self, event: Event) -> bool {
        if let Some(wait) = self.wait.take() {
            let _ = wait.recv();
        }
        if event.is_terminal() {
            self.endings.lock().unwrap().push(self.index);
        }
        self.events.send(event).is_ok()
    }

    fn is_closed(&self) -> bool {
        false
    }
}

/// A shifted conversation asks again beside a running request, in less room than all of its tokens
/// would take.
fn waits_for_nobody(name: &str, file: &ModelFile, vocabulary: u32) {
    let shifts = Way { context_shift: true, block_tokens: 16, ..Way::plain(128) };
    let roomy = shifts.engine(file);
    let one = roomy.stats().kv_reserved_bytes / 4;
    let tight = Way { kv_memory: Some(2 * one), ..shifts }.engine(file);
    let said = tokens(vocabulary, 80, 0);
    let answers = [roomy, tight].map(|engine| {
        let session = engine.open_session().expect("an engine");
        let turn = |prompt: &[u32], max_tokens| Request {
            session: Some(session),
            max_tokens: Some(max_tokens),
            context_shift: Some(ContextShift { keep: 5 }),
            ..request(prompt)
        };
        let (first, _) = ask(&engine, turn(&said, 330));
        let asked = said.iter().copied().chain(first.iter().map(|&(id, _)| id)).chain([7, 8, 9]);
        let other = Request { max_tokens: Some(100), ..request(&tokens(vocabulary, 20, 1)) };
        let again = turn(&asked.collect::<Vec<_>>(), ANSWER);
        let [other, again] = in_order_of_ending(&engine, [other, again], [1, 0], name);
        (first, again, other)
    });
    assert_eq!(answers[0], answers[1], "{name}");
}

/// An idle conversation gives its cells to a request beside a running one, and goes on the same.
fn idle_gives_way(name: &str, file: &ModelFile, vocabulary: u32) {
    let way = Way { block_tokens: 16, ..Way::plain(128) };
    let roomy = way.engine(file);
    let one = roomy.stats().kv_reserved_bytes / 4;
    let tight = Way { kv_memory: Some(one), ..way }.engine(file);
    let said = tokens(vocabulary, 96, 0);
    let answers = [roomy, tight].map(|engine| {
        let session = engine.open_session().expect("an engine");
        let turn = |prompt: &[u32]| Request { session: Some(session), ..request(prompt) };
        let (first, _) = ask(&engine, turn(&said));
        let other = Request { max_tokens: Some(60), ..request(&tokens(vocabulary, 4, 1)) };
        let waiting = request(&tokens(vocabulary, 20, 2));
        let [other, waiting] = in_order_of_ending(&engine, [other, waiting], [1, 0], name);
        let asked = said.iter().copied().chain(first.iter().map(|&(id, _)| id)).chain([7, 8, 9]);
        (waiting, other, ask(&engine, turn(&asked.collect::<Vec<_>>())).0, first)
    });
    assert_eq!(answers[0], answers[1], "{name}");
}
