//! Rows that move down while others are computed change no bit of any answer, and the memory above
//! them is given back.

#[path = "common/engine.rs"]
mod common;

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use common::{Bits, Way, ask, read, request, synthetic_file, tokens};
use minfer::engine::event::Event;
use minfer::engine::{Engine, EngineStats, EventSink, Events, Request};
use minfer::graph::KvGranule;
use minfer_testkit::synthetic::Family;

/// Several blocks of the tiny model.
const GRANULE: u64 = 256 << 10;

fn engine(granule: KvGranule) -> Engine {
    let way = Way { granule, keep_warm: 0, n_slots: 6, ..Way::plain(1024) };
    way.engine(&synthetic_file(Family::Llama))
}

/// Passes events on, with what the engine had counted when each came.
struct Witness {
    engine: Arc<Engine>,
    counted: Arc<Mutex<Vec<EngineStats>>>,
    events: mpsc::Sender<Event>,
}

impl EventSink for Witness {
    fn send(&mut self, event: Event) -> bool {
        self.counted.lock().unwrap().push(self.engine.stats());
        self.events.send(event).is_ok()
    }

    fn is_closed(&self) -> bool {
        false
    }
}

/// Stops the engine at its first event until the other end is dropped.
struct Gate(mpsc::Receiver<()>);

impl EventSink for Gate {
    fn send(&mut self, _event: Event) -> bool {
        // The other end sends nothing: this ends when it is gone.
        self.0.recv().is_err()
    }

    fn is_closed(&self) -> bool {
        false
    }
}

/// The engine takes no step until what this gives is dropped, so that what is submitted before
/// comes together.
fn hold(engine: &Engine) -> mpsc::Sender<()> {
    let (held, gate) = mpsc::channel();
    let request = Request { max_tokens: Some(1), ..request(&[1]) };
    engine.submit_to(request, Gate(gate)).expect("accepted");
    held
}

/// Requests that end soon and whose rows are kept once: what the second and third of them took is
/// free afterwards.
fn short() -> Request {
    Request { reuse: false, ..request(&tokens(250, 300, 1)) }
}

fn long(tokens_wanted: u32) -> Request {
    Request { max_tokens: Some(tokens_wanted), ..request(&tokens(250, 300, 2)) }
}

/// Answers to three short requests and a long one that comes last and goes on when they have ended,
/// with the counts at each of its events.
fn mix(engine: &Arc<Engine>) -> (Vec<Bits>, Vec<EngineStats>) {
    let held = hold(engine);
    let first: Vec<Events> = (0..3).map(|_| engine.submit(short()).expect("accepted").1).collect();
    let (events, received) = mpsc::channel();
    let counted = Arc::default();
    let witness = Witness { engine: Arc::clone(engine), counted: Arc::clone(&counted), events };
    engine.submit_to(long(120), witness).expect("accepted");
    drop(held);
    let mut answers: Vec<Bits> = first.iter().map(|events| read(events).0).collect();
    answers.push(common::bits(|| received.recv().expect("an event")).0);
    let counted = counted.lock().unwrap().clone();
    (answers, counted)
}

/// The counts once an idle engine has nothing more to move.
fn settled(engine: &Engine) -> EngineStats {
    let start = Instant::now();
    loop {
        let stats = engine.stats();
        let used = stats.kv.live_bytes + stats.kv.cached_bytes;
        if stats.kv_committed_bytes == used.next_multiple_of(GRANULE) || start.elapsed().as_secs() > 20 {
            return stats;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn rows_that_move_in_the_middle_of_an_answer_change_no_bit_of_it() {
    let still = Arc::new(engine(KvGranule::Page));
    let (expected, _) = mix(&still);
    assert_eq!(still.stats().compactions, 0, "blocks of whole pages: nothing to gain");
    let moving = Arc::new(engine(KvGranule::Bytes(GRANULE)));
    let (answers, counted) = mix(&moving);
    assert_eq!(answers, expected);
    let [first, last] = [counted.first(), counted.last()].map(|stats| stats.expect("events").kv.blocks_moved);
    assert_eq!(first, 0);
    assert!(last > 0, "nothing moved before the end of the long answer");
    let most = counted.iter().map(|stats| stats.kv_committed_bytes).max().unwrap();
    let stats = settled(&moving);
    let used = stats.kv.live_bytes + stats.kv.cached_bytes;
    assert_eq!(stats.kv_committed_bytes, used.next_multiple_of(GRANULE), "{stats:?}");
    assert!(stats.kv_committed_bytes < most && stats.compacted_bytes >= GRANULE, "{stats:?}");
    assert_eq!(stats.kv_warm_bytes, 0, "what is free is the system's again");
}

#[test]
fn an_idle_engine_moves_rows_that_are_kept_and_they_serve_on() {
    let engine = engine(KvGranule::Bytes(GRANULE));
    let session = engine.open_session().expect("an engine");
    let held = hold(&engine);
    let together: Vec<Events> = (0..4).map(|_| engine.submit(short()).expect("accepted").1).collect();
    let said = tokens(250, 290, 2);
    let turn = |prompt: &[u32]| Request { session: Some(session), ..request(prompt) };
    let events = engine.submit(turn(&said)).expect("accepted").1;
    drop(held);
    together.iter().for_each(|events| drop(read(events)));
    let answer = read(&events).0;
    let stats = settled(&engine);
    let used = stats.kv.live_bytes + stats.kv.cached_bytes;
    assert_eq!(stats.kv_committed_bytes, used.next_multiple_of(GRANULE), "{stats:?}");
    assert!(stats.compactions > 0 && stats.kv.blocks_moved > 0, "{stats:?}");
    assert_eq!(stats.kv_warm_bytes, 0);
    // The conversation goes on with rows that have moved, and so does a request that begins like
    // one that has ended.
    let next = [&said[..], &answer.iter().map(|(id, _)| *id).collect::<Vec<u32>>(), &[9, 8, 7]].concat();
    let (bits, finished) = ask(&engine, turn(&next));
    assert_eq!(finished.usage.cached as usize, next.len() - 4, "nothing was computed again");
    let plain = self::engine(KvGranule::Page);
    assert_eq!(bits, ask(&plain, request(&next)).0);
    let again = Request { reuse: true, ..short() };
    let (bits, finished) = ask(&engine, again.clone());
    assert_eq!(finished.usage.cached, 299);
    assert_eq!(bits, ask(&plain, again).0);
}
