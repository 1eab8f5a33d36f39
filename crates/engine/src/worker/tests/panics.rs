//! Panics: one that a sequence causes fails that sequence, any other the sequences of the step. The
//! engine goes on.

use std::sync::{Arc, Mutex, mpsc};

use super::*;
use crate::RequestId;
use crate::test_model::hooked::{Hooked, Hooks};

/// Where a sink panics.
#[derive(Debug, Clone, Copy, PartialEq)]
enum At {
    /// At its event of this index.
    Event(usize),
    /// At every event from this index on, the terminal one included.
    From(usize),
    /// When it is asked whether anybody listens, after so many times.
    IsClosed(usize),
    /// When it is dropped.
    Drop,
    /// At the first event, and when it is dropped.
    EventAndDrop,
}

/// Passes events on and panics.
struct Panicking {
    at: At,
    events: usize,
    asked: Mutex<usize>,
    sender: mpsc::Sender<Event>,
}

impl EventSink for Panicking {
    fn send(&mut self, event: Event) -> bool {
        let index = self.events;
        self.events += 1;
        let panics = match self.at {
            At::Event(at) => at == index,
            At::From(from) => index >= from,
            At::EventAndDrop => index == 0,
            At::IsClosed(_) | At::Drop => false,
        };
        assert!(!panics, "the sink panics at event {index}");
        self.sender.send(event).is_ok()
    }

    fn is_closed(&self) -> bool {
        let mut asked = self.asked.lock().unwrap();
        *asked += 1;
        let panics = matches!(self.at, At::IsClosed(at) if at < *asked);
        drop(asked);
        assert!(!panics, "the sink panics when it is asked");
        false
    }
}

impl Drop for Panicking {
    fn drop(&mut self) {
        assert!(!matches!(self.at, At::Drop | At::EventAndDrop), "the sink panics when it is dropped");
    }
}

fn submit(bench: &mut Bench, request: Request, at: At) -> (RequestId, mpsc::Receiver<Event>) {
    let (sender, events) = mpsc::channel();
    let sink = Panicking { at, events: 0, asked: Mutex::default(), sender };
    (bench.submit_with(crate::Submission::new(request, sink)).unwrap(), events)
}

/// Two neighbours of a request, the later one still waiting for a slot at first.
fn neighbours(bench: &mut Bench) -> Vec<(Request, crate::Events)> {
    let requests = (1..4).map(|seed| sampled(&[seed as u32, 7, 9], 12, seed));
    let submit = |request: Request| (request.clone(), bench.submit(request).unwrap().1);
    requests.map(submit).collect()
}

fn assert_answers(neighbours: Vec<(Request, crate::Events)>) {
    let mut quiet = bench(&eloquent());
    for (request, events) in neighbours {
        assert_eq!(Answer::of(&events).ids(), quiet.answer(request).ids());
    }
}

#[test]
fn a_panicking_sink_fails_its_request_once_and_no_other() {
    let at = [At::Event(0), At::Event(1), At::Event(5), At::From(0), At::From(2), At::From(13)];
    for at in at.into_iter().chain([At::IsClosed(0), At::IsClosed(4), At::Drop, At::EventAndDrop]) {
        let mut bench = bench(&eloquent());
        let (_, events) = submit(&mut bench, sampled(&[5, 6], 12, 9), at);
        let others = neighbours(&mut bench);
        bench.drain();
        let events: Vec<Event> = events.try_iter().collect();
        let ends = events.iter().filter(|event| event.is_terminal()).count();
        // A sink that panics at its terminal event, too, has heard of no end.
        let ended = !matches!(at, At::From(_));
        assert_eq!(ends, usize::from(ended), "{at:?}: {events:?}");
        let stats = bench.stats();
        let fails = !matches!(at, At::Drop | At::From(13));
        assert_eq!((stats.failed, stats.finished), (u64::from(fails), 4 - u64::from(fails)), "{at:?}");
        if fails && ended {
            let Some(Event::Failed(EngineError::Panicked(text))) = events.last() else {
                panic!("{events:?}")
            };
            assert!(text.contains("the sink panics"), "{text}");
        }
        assert_answers(others);
        bench.assert_idle();
        let request = sampled(&[5, 6], 12, 9);
        let expected = self::bench(&eloquent()).answer(request.clone()).ids();
        assert_eq!(bench.answer(request).ids(), expected, "{at:?}");
    }
}

#[test]
fn a_panic_in_the_text_of_an_answer_fails_its_request() {
    let mut bench = bench(&scripted(2, "one END two"));
    let stop = vec![" END".to_owned()];
    let (_, events) = bench.submit(Request { stop: stop.clone(), ..greedy(&[1, 2]) }).unwrap();
    // The stop string that is found is not in the list.
    bench.worker.waiting[0].stop.clear();
    let other = bench.submit(greedy(&[3, 4])).unwrap().1;
    bench.drain();
    let answer = Answer::of(&events);
    assert!(matches!(answer.last(), Event::Failed(EngineError::Panicked(_))), "{answer:?}");
    assert_eq!(Answer::of(&other).text(), "one END two");
    bench.assert_idle();
    assert_eq!(bench.answer(Request { stop, ..greedy(&[1, 2]) }).text(), "one");
}

fn faulty(shape: Shape) -> (Bench, Arc<Mutex<Hooks>>) {
    let hooks = Arc::<Mutex<Hooks>>::default();
    let given = Arc::clone(&hooks);
    (Bench::with_model(&eloquent(), shape, |executor| Hooked { executor, hooks: given }), hooks)
}

#[test]
fn a_panic_while_a_row_is_read_fails_its_request() {
    for short in [false, true] {
        let (mut bench, faults) = faulty(Shape::default());
        let prompt_logprobs = Some(PromptLogprobs { top: 1 });
        let request = Request { prompt_logprobs, ..sampled(&[200, 201], 12, 9) };
        let (_, events) = bench.submit(request.clone()).unwrap();
        let others = neighbours(&mut bench);
        // The first row is the prompt's first, whose next token is beyond the logits that are cut
        // short.
        *faults.lock().unwrap() = match short {
            true => Hooks { short_logits: Some(0), ..Hooks::default() },
            false => Hooks { logits: Some(0), ..Hooks::default() },
        };
        bench.drain();
        let answer = Answer::of(&events);
        assert!(matches!(answer.last(), Event::Failed(EngineError::Panicked(_))), "{answer:?}");
        assert_eq!((bench.stats().failed, bench.stats().finished), (1, 3));
        assert_answers(others);
        bench.assert_idle();
        let expected = self::bench(&eloquent()).answer(request.clone()).ids();
        assert_eq!(bench.answer(request).ids(), expected);
    }
}

#[test]
fn a_panic_anywhere_in_a_step_leaves_an_engine_that_answers() {
    let mut hit = 0;
    for at in 0..120 {
        for in_block in [false, true] {
            // Few blocks, so that sequences wait for them or are preempted.
            let (mut bench, faults) = faulty(small(4));
            let session = crate::session::SessionId(1);
            bench.worker.open_session(session, None);
            let first =
                bench.submit(Request { session: Some(session), ..sampled(&[5; 20], 12, 9) }).unwrap().1;
            let others = neighbours(&mut bench);
            match in_block {
                true => bench.backend.panic_allocation(at),
                false => faults.lock().unwrap().arena = Some(at as u32),
            }
            bench.drain();
            // A fault that was not reached in these steps is taken back.
            bench.backend.panic_allocation(u64::MAX);
            faults.lock().unwrap().arena = None;
            let stats = bench.stats();
            assert_eq!(stats.failed + stats.finished, 4, "at {at}, in a block: {in_block}");
            hit += u32::from(stats.failed > 0);
            let mut quiet = self::bench(&eloquent());
            for (request, events) in others {
                let (answer, alone) = (Answer::of(&events), quiet.answer(request).ids());
                match answer.last() {
                    Event::Failed(EngineError::Panicked(_)) => assert!(alone.starts_with(&answer.ids())),
                    _ => assert_eq!(answer.ids(), alone),
                }
            }
            assert!(Answer::of(&first).last().is_terminal());
            // The conversation is not in use, and nothing of the step that failed is left in it.
            let next = Request { session: Some(session), ..sampled(&[5; 24], 12, 9) };
            let alone = quiet.answer(Request { session: None, ..next.clone() }).ids();
            assert_eq!(bench.answer(next).ids(), alone, "at {at}, in a block: {in_block}");
            bench.worker.close_session(session);
            bench.worker.step();
            bench.assert_idle();
        }
    }
    assert!(hit > 40, "only {hit} steps panicked");
}

#[test]
fn counts_that_cannot_be_had_keep_nobody_from_the_end() {
    let (mut bench, faults) = faulty(Shape::default());
    let (_, events) = bench.submit(sampled(&[5, 6], 12, 9)).unwrap();
    faults.lock().unwrap().stats = true;
    bench.drain();
    let ids = Answer::of(&events).ids();
    faults.lock().unwrap().stats = false;
    assert_eq!(bench.answer(sampled(&[5, 6], 12, 9)).ids(), ids);
    bench.assert_idle();
}
