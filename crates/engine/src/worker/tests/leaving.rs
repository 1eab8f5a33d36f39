//! Callers that cancel or go away.

use super::*;

/// Steps to put between submission and the end: queued, in prefill, in decode.
const STAGES: [usize; 4] = [0, 1, 3, 5];

#[test]
fn cancelled_at_any_stage() {
    for steps in STAGES {
        let mut bench = bench(&scripted(20, "abcdefghijklmn"));
        let (id, events) = bench.submit(greedy(&[1; 20])).unwrap();
        (0..steps).for_each(|_| assert!(bench.worker.step()));
        bench.worker.cancel(id);
        assert_eq!(Answer::of(&events).last(), &Event::Cancelled);
        assert_eq!(bench.stats().cancelled, 1);
        bench.assert_idle();
        bench.worker.cancel(id);
        assert_eq!(bench.answer(greedy(&[1; 20])).text(), "abcdefghijklmn");
    }
}

#[test]
fn a_client_that_is_gone_is_noticed_within_a_step() {
    for steps in STAGES {
        let mut bench = bench(&scripted(20, "abcdefghijklmn"));
        let (_, events) = bench.submit(greedy(&[1; 20])).unwrap();
        (0..steps).for_each(|_| assert!(bench.worker.step()));
        let fed = bench.stats().tokens_fed;
        drop(events);
        bench.worker.step();
        assert!(!bench.worker.has_work());
        assert_eq!((bench.stats().cancelled, bench.stats().tokens_fed), (1, fed));
        bench.assert_idle();
    }
}

#[test]
fn a_sink_that_takes_no_more_is_a_client_that_is_gone() {
    struct Deaf;
    impl EventSink for Deaf {
        fn send(&mut self, _event: Event) -> bool {
            false
        }

        fn is_closed(&self) -> bool {
            false
        }
    }
    let mut bench = bench(&scripted(3, "abcdef"));
    bench.submit_with(crate::Submission::new(greedy(&[1; 3]), Deaf)).unwrap();
    bench.drain();
    assert_eq!((bench.stats().steps, bench.stats().cancelled), (1, 1));
    bench.assert_idle();
}

#[test]
fn a_cancelled_one_disturbs_no_other() {
    let mut bench = bench(&eloquent());
    let request = |seed| sampled(&[1, 2, 3], 10, seed);
    let alone = bench.answer(request(5)).ids();
    let (id, first) = bench.submit(request(4)).unwrap();
    let (_, second) = bench.submit(request(5)).unwrap();
    (0..4).for_each(|_| assert!(bench.worker.step()));
    bench.worker.cancel(id);
    bench.drain();
    assert_eq!(Answer::of(&first).last(), &Event::Cancelled);
    assert_eq!(Answer::of(&second).ids(), alone);
}
