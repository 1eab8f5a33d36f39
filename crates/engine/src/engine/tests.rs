use std::sync::Mutex as StdMutex;
use std::time::Duration;

use minfer_graph::{Extents, NullBackend};

use super::*;
use crate::EngineError;
use crate::event::FinishReason;
use crate::test_model::{eloquent, executor, greedy, scripted, tokenizer};

const CONFIG: EngineConfig = EngineConfig {
    n_ctx: 4096,
    n_batch: 16,
    step_target: 0.0,
    n_slots: 3,
    queue: 5,
    kv_blocks: None,
    block_order: crate::kv::BlockOrder::LowestFirst,
    prefix_cache: true,
    speculation: true,
    identity: crate::kv::session::SessionIdentity { model: 1, template: 2 },
};

const EXTENTS: Extents = Extents { tokens: 16, rows: 2, sequences: 3 };

fn engine(backend: &NullBackend) -> Engine {
    Engine::new(executor(backend, 600, EXTENTS), tokenizer(), CONFIG).unwrap()
}

/// A request that goes on for as long as it may.
fn endless() -> Request {
    Request { ignore_eos: true, ..greedy(&[1, 2]) }
}

fn text(events: Events) -> (String, Event) {
    let mut text = String::new();
    for event in events {
        match event {
            Event::Token(token) => text.push_str(&token.text),
            event if event.is_terminal() => return (text, event),
            _ => {}
        }
    }
    panic!("the events ended without a terminal one")
}

#[test]
fn answers_come_from_the_thread() {
    let engine = engine(&scripted(2, "hello"));
    let (_, events) = engine.submit(greedy(&[1, 2])).unwrap();
    let (text, last) = text(events);
    assert_eq!(text, "hello");
    assert!(matches!(last, Event::Finished(_)));
    let stats = engine.stats();
    assert_eq!((stats.finished, stats.running, stats.kv.blocks_live), (1, 0, 0));
    assert_eq!((stats.steps, stats.generated_tokens, stats.model.graph_builds), (6, 6, 2));
    assert!(stats.kv_reserved_bytes > 0);
    assert!(!engine.has_stopped());
    engine.shutdown();
}

#[test]
fn many_clients_at_once() {
    let engine = engine(&eloquent());
    let alone: Vec<String> = (0..4)
        .map(|id| text(engine.submit(Request { max_tokens: Some(20), ..greedy(&[id; 9]) }).unwrap().1).0)
        .collect();
    std::thread::scope(|scope| {
        for client in 0..8 {
            let (engine, alone) = (&engine, &alone);
            scope.spawn(move || {
                let id = client % 4;
                let request = Request { max_tokens: Some(20), ..greedy(&[id; 9]) };
                let (text, last) = text(engine.submit(request).unwrap().1);
                assert_eq!(text, alone[id as usize]);
                assert!(matches!(last, Event::Finished(_)));
            });
        }
    });
    assert_eq!(engine.stats().finished, 12);
}

#[test]
fn cancelling_through_the_handle() {
    let backend = NullBackend::new();
    backend.delay_runs(Duration::from_millis(1));
    let engine = engine(&backend);
    let (id, events) = engine.submit(endless()).unwrap();
    let first = events.recv_timeout(Duration::from_secs(10));
    assert!(matches!(first, Ok(Event::Progress(_))));
    engine.cancel(id);
    assert_eq!(text(events).1, Event::Cancelled);
    assert_eq!((engine.stats().cancelled, engine.stats().kv.blocks_live), (1, 0));
}

#[test]
fn shutting_down_cancels_what_runs_and_what_waits() {
    let backend = NullBackend::new();
    backend.delay_runs(Duration::from_millis(1));
    let engine = engine(&backend);
    let events: Vec<Events> = (0..8).map(|_| engine.submit(endless()).unwrap().1).collect();
    engine.shutdown();
    assert!(events.into_iter().all(|events| text(events).1 == Event::Cancelled));
    assert_eq!(backend.stats().committed_blocks, 0);
}

#[test]
fn a_panicking_sink_fails_its_request_and_the_engine_goes_on() {
    struct Rude(Sender<Event>);
    impl EventSink for Rude {
        fn send(&mut self, event: Event) -> bool {
            assert!(event.is_terminal(), "this sink panics");
            self.0.send(event).is_ok()
        }

        fn is_closed(&self) -> bool {
            false
        }
    }
    let engine = engine(&scripted(1, "abc"));
    let (sender, ending) = mpsc::channel();
    let (_, neighbour) = engine.submit(greedy(&[1])).unwrap();
    engine.submit_to(greedy(&[2]), Rude(sender)).unwrap();
    let endings: Vec<Event> = ending.iter().collect();
    let [Event::Failed(EngineError::Panicked(message))] = &endings[..] else { panic!("{endings:?}") };
    assert!(message.contains("this sink panics"), "{message}");
    assert_eq!(text(neighbour).0, "abc");
    let (_, next) = engine.submit(greedy(&[3])).unwrap();
    assert_eq!(text(next).0, "abc");
    assert!(!engine.has_stopped());
    assert_eq!(engine.stats().failed, 1);
}

#[test]
fn a_sink_of_the_clients_own() {
    struct Collect(Arc<StdMutex<Vec<Event>>>, Sender<()>);
    impl EventSink for Collect {
        fn send(&mut self, event: Event) -> bool {
            let last = event.is_terminal();
            self.0.lock().unwrap().push(event);
            if last {
                self.1.send(()).unwrap();
            }
            true
        }

        fn is_closed(&self) -> bool {
            false
        }
    }
    let engine = engine(&scripted(1, "abc"));
    let events: Arc<StdMutex<Vec<Event>>> = Arc::default();
    let (done, wait) = mpsc::channel();
    let request = Request { max_tokens: Some(2), ..greedy(&[1]) };
    engine.submit_to(request, Collect(Arc::clone(&events), done)).unwrap();
    wait.recv().unwrap();
    let events = events.lock().unwrap();
    assert_eq!(events.len(), 4);
    let Some(Event::Finished(finished)) = events.last() else { panic!("{events:?}") };
    assert_eq!(finished.reason, FinishReason::Length);
}

#[test]
fn settings_are_checked_against_the_model() {
    let refused = |config: EngineConfig| {
        let model = executor(&NullBackend::new(), 4, EXTENTS);
        Engine::new(model, tokenizer(), config).unwrap_err().to_string()
    };
    let text = "`n_batch` is 17, but the model was compiled for 16";
    assert_eq!(refused(EngineConfig { n_batch: 17, ..CONFIG }), text);
    let text = "`n_slots` is 4, but the model was compiled for 3";
    assert_eq!(refused(EngineConfig { n_slots: 4, ..CONFIG }), text);
    assert_eq!(refused(EngineConfig { n_slots: 0, ..CONFIG }), "`n_slots` is 0, but must be at least 1");
    assert_eq!(refused(EngineConfig { n_batch: 2, ..CONFIG }), "`n_batch` is 2, but must be at least 3");
    assert_eq!(refused(EngineConfig { n_ctx: 1, ..CONFIG }), "`n_ctx` is 1, but must be at least 2");
}

#[test]
fn a_drained_engine_lets_requests_end_until_the_deadline() {
    let backend = NullBackend::new();
    backend.delay_runs(Duration::from_millis(1));
    let engine = engine(&backend);
    let (_, short) = engine.submit(Request { max_tokens: Some(5), ..greedy(&[1]) }).unwrap();
    assert!(engine.drain(Instant::now() + Duration::from_secs(60)));
    assert!(matches!(text(short).1, Event::Finished(_)));
    assert!(matches!(engine.submit(greedy(&[1])), Err(SubmitError::Stopped)));
    let engine = self::engine(&backend);
    let endless: Vec<Events> = (0..5).map(|_| engine.submit(endless()).unwrap().1).collect();
    assert!(!engine.drain(Instant::now() + Duration::from_millis(20)));
    assert!(endless.into_iter().all(|events| text(events).1 == Event::Cancelled));
}

#[test]
fn an_observer_hears_of_every_step_and_its_panic_is_its_own() {
    let engine = engine(&scripted(20, "abc"));
    let reports: Arc<StdMutex<Vec<StepReport>>> = Arc::default();
    let heard = Arc::clone(&reports);
    engine.observe_steps(move |report| heard.lock().unwrap().push(*report));
    assert_eq!(text(engine.submit(greedy(&[1; 20])).unwrap().1).0, "abc");
    engine.session(SessionId(0));
    let reports = reports.lock().unwrap().clone();
    let rows: Vec<(u32, u32)> =
        reports.iter().map(|report| (report.prefill_rows, report.decode_rows)).collect();
    assert_eq!(rows, [(16, 0), (4, 0), (0, 1), (0, 1), (0, 1)]);
    assert!(reports.iter().all(|report| report.body > Duration::ZERO && report.total() > report.body));
    engine.observe_steps(|_| panic!("this observer panics"));
    assert_eq!(text(engine.submit(greedy(&[1; 20])).unwrap().1).0, "abc");
    assert!(!engine.has_stopped());
}
