use minfer_graph::NullBackend;

use crate::EngineConfig;
use crate::RequestId;
use crate::request::{ContextShift, Request};
use crate::test_model::{Answer, Bench, Shape, eloquent, greedy};

const N_CTX: usize = 64;

fn bench(backend: &NullBackend, blocks: u32) -> Bench {
    let config = EngineConfig { n_ctx: N_CTX, ..Shape::default().config };
    Bench::new(backend, Shape { config, blocks, ..Shape::default() })
}

/// A request whose prompt nearly fills the context, which then goes on past it.
fn shifting(token: u32) -> Request {
    let context_shift = Some(ContextShift { keep: 3 });
    Request { context_shift, max_tokens: Some(200), ignore_eos: true, ..greedy(&[token; 60]) }
}

/// A request that grows slowly up to the context and forgets nothing.
fn growing(token: u32) -> Request {
    Request { max_tokens: Some(58), ignore_eos: true, ..greedy(&[token; 4]) }
}

/// What became of two requests that ran beside each other.
#[derive(Default)]
struct Seen {
    /// Preemptions of the younger one while one of the two was shifted and the other was not.
    mixed: u64,
    swaps: u64,
}

/// Runs two requests in so many blocks. The older one runs from its first step to its end.
fn crowd(older: &Request, younger: &Request, blocks: u32) -> Seen {
    let mut bench = bench(&eloquent(), blocks);
    let (first, of_older) = bench.submit(older.clone()).unwrap();
    let (second, of_younger) = bench.submit(younger.clone()).unwrap();
    let mut seen = Seen::default();
    let is_shifted = |bench: &Bench, id: RequestId| {
        let sequence = bench.worker.running.iter().find(|sequence| sequence.id() == id);
        sequence.map(|sequence| !sequence.history.removed().is_empty())
    };
    while bench.worker.has_work() {
        let before = (is_shifted(&bench, first), is_shifted(&bench, second), bench.stats().preemptions);
        assert!(bench.worker.step());
        let waits = bench.worker.waiting.iter().any(|sequence| sequence.id() == first);
        assert!(!waits, "{blocks} blocks: the older one had to give way");
        if let (Some(older), Some(younger), preemptions) = before {
            seen.mixed += if older == younger { 0 } else { bench.stats().preemptions - preemptions };
        }
    }
    seen.swaps = bench.stats().swaps;
    for (events, request) in [(of_older, older), (of_younger, younger)] {
        let alone = self::bench(&eloquent(), 64).answer(request.clone());
        assert_eq!(Answer::of(&events).ids(), alone.ids(), "{blocks} blocks");
    }
    bench.assert_idle();
    seen
}

#[test]
fn the_older_of_two_never_gives_way_whichever_is_shifted() {
    for younger_shifts in [true, false] {
        let (older, younger) =
            if younger_shifts { (growing(1), shifting(2)) } else { (shifting(1), growing(2)) };
        let (mut mixed, mut swaps) = (0, 0);
        // Room for one of them in whatever state it is, and for both only now and then.
        for blocks in 7..12 {
            let seen = crowd(&older, &younger, blocks);
            (mixed, swaps) = (mixed + seen.mixed, swaps + seen.swaps);
        }
        assert!(mixed > 0, "the younger shifts: {younger_shifts}");
        assert_eq!(swaps > 0, younger_shifts, "rows that cannot be computed again are kept, others are not");
    }
}

#[test]
fn the_youngest_that_can_be_computed_again_gives_way_before_a_shifted_one() {
    let mut bench = bench(&eloquent(), 10);
    let requests = [growing(1), growing(2), shifting(3)];
    let submitted = requests.clone().map(|request| bench.submit(request).unwrap());
    let ids = [0, 1, 2].map(|index| submitted[index].0);
    let mut swaps = 0;
    while bench.worker.has_work() {
        assert!(bench.worker.step());
        let [waits, _, shifted] = ids.map(|id| bench.worker.waiting.iter().any(|other| other.id() == id));
        assert!(!waits, "the oldest gave way");
        // The shifted one only gives way once the one before it has, or has ended.
        if shifted && bench.stats().swaps > swaps {
            assert!(!bench.worker.running.iter().any(|other| other.id() == ids[1]), "the second still runs");
        }
        swaps = bench.stats().swaps;
    }
    assert!(bench.stats().preemptions > 0);
    for ((_, events), request) in submitted.into_iter().zip(requests) {
        assert_eq!(Answer::of(&events).ids(), self::bench(&eloquent(), 64).answer(request).ids());
    }
}
