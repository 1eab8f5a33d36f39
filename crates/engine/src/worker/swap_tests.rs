//! Swapping out to host memory, with and without room there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::session_tests::{ID, alone, bench, shifting, turn};
use crate::EngineError;
use crate::event::{Event, FinishReason};
use crate::request::Request;
use crate::session::SessionInfo;
use crate::test_model::Answer;
use crate::{HostLease, HostMemory};

/// Host memory of `most` bytes, and the bytes that are leased of it. Every lease must be taken
/// before it ends.
pub(super) fn host(most: u64) -> (HostMemory, Arc<AtomicU64>) {
    struct Lease(Arc<AtomicU64>, u64, bool);
    impl HostLease for Lease {
        fn taken(&mut self) {
            assert!(!std::mem::replace(&mut self.2, true));
        }
    }
    impl Drop for Lease {
        fn drop(&mut self) {
            assert!(self.2);
            self.0.fetch_sub(self.1, Ordering::Relaxed);
        }
    }
    let leased = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&leased);
    let lend = move |bytes| {
        if count.load(Ordering::Relaxed) + bytes > most {
            return None;
        }
        count.fetch_add(bytes, Ordering::Relaxed);
        Some(Box::new(Lease(Arc::clone(&count), bytes, false)) as Box<dyn HostLease>)
    };
    (HostMemory::new(lend), leased)
}

/// Sequences are swapped out only if host memory has room. Otherwise they wait; if all wait, the
/// youngest shifts its context or ends early. No request fails, and the oldest answers as it does
/// alone.
#[test]
fn shifted_sequences_wait_where_the_host_has_no_room() {
    let long = |seed: u32| Request { session: None, ..shifting(turn(&[seed; 20], 400)) };
    let expected: Vec<_> = (1..4).map(|seed| bench(64, 64).answer(long(seed)).ids()).collect();
    let mut swaps = [0, 0];
    for (kind, most) in [0, u64::MAX].into_iter().enumerate() {
        for blocks in 7..16 {
            let mut tight = bench(64, blocks);
            let (host, leased) = host(most);
            tight.worker.host = host;
            let events: Vec<_> = (1..4).map(|seed| tight.submit(long(seed)).unwrap().1).collect();
            let mut peak = 0;
            while tight.worker.has_work() && tight.worker.step() {
                peak = peak.max(leased.load(Ordering::Relaxed));
            }
            let answers: Vec<_> = events.iter().map(Answer::of).collect();
            assert_eq!(answers[0].ids(), expected[0], "{blocks} blocks");
            assert!(answers.iter().all(|answer| answer.finished().reason == FinishReason::Length));
            let whole = answers.iter().filter(|answer| answer.ids().len() == 400).count();
            // A sequence that forgets has two blocks at least, and one that never had to has six.
            assert!(whole == 3 || most == 0 && blocks < 6 + 2 + 2, "{blocks} blocks, {whole} of 3");
            if most > 0 {
                assert!(answers.iter().map(Answer::ids).eq(expected.iter().cloned()), "{blocks} blocks");
            }
            swaps[kind] += tight.stats().swaps;
            assert_eq!((peak > 0, leased.load(Ordering::Relaxed)), (tight.stats().swaps > 0, 0));
            tight.assert_idle();
        }
    }
    assert!(swaps[0] == 0 && swaps[1] > 0, "{swaps:?}");
}

/// An idle conversation that cannot be swapped out keeps its rows unless a request cannot run
/// otherwise; then it is recomputed.
#[test]
fn an_idle_conversation_without_another_place_is_computed_again() {
    let mut bench = bench(64, 6);
    (bench.worker.host, _) = host(0);
    let mut tokens: Vec<u32> = (10..40).collect();
    tokens.extend(bench.answer(shifting(turn(&tokens, 60))).ids());
    let kept = bench.worker.session_info(ID).unwrap();
    assert!(kept.removed > 0);
    let small = Request { session: None, ..turn(&[3; 10], 4) };
    assert_eq!(bench.answer(small).ids(), alone(&[3; 10], 4));
    assert_eq!(bench.worker.session_info(ID).unwrap(), kept);
    let large = Request { session: None, ..turn(&[3; 40], 8) };
    assert_eq!(bench.answer(large).ids(), alone(&[3; 40], 8));
    let forgotten = SessionInfo { rows: 0, ..kept };
    assert_eq!((bench.worker.session_info(ID).unwrap(), bench.stats().swaps), (forgotten, 0));
    tokens.truncate(40);
    assert_eq!(bench.answer(turn(&tokens, 5)).ids(), alone(&tokens, 5));
    bench.worker.close_session(ID);
    bench.assert_idle();
}

/// A failed read while swapping out fails that request only.
#[test]
fn rows_that_cannot_be_read_fail_their_own_request_alone() {
    let long = |seed: u32| Request { session: None, ..shifting(turn(&[seed; 20], 400)) };
    let expected: Vec<_> = (1..3).map(|seed| bench(64, 64).answer(long(seed)).ids()).collect();
    for more in [0, 1, 7] {
        let mut tight = bench(64, 8);
        tight.backend.fail_read(more);
        let events: Vec<_> = (1..3).map(|seed| tight.submit(long(seed)).unwrap().1).collect();
        tight.drain();
        let answers: Vec<_> = events.iter().map(Answer::of).collect();
        assert_eq!(answers[0].ids(), expected[0], "the oldest never leaves the cache");
        assert!(
            matches!(answers[1].last(), Event::Failed(EngineError::Backend(_))),
            "{:?}",
            answers[1].last()
        );
        assert!(expected[1].starts_with(&answers[1].ids()));
        assert_eq!((tight.stats().failed, tight.stats().stalled), (1, false));
        tight.assert_idle();
        assert_eq!(tight.answer(long(2)).ids(), expected[1]);
    }
}

/// A conversation whose rows could not be read is recomputed, without its removed tokens if the
/// whole does not fit the context.
#[test]
fn a_conversation_whose_rows_cannot_be_read_is_recomputed() {
    let mut tokens: Vec<u32> = (10..40).collect();
    let mut bench = bench(64, 6);
    tokens.extend(bench.answer(shifting(turn(&tokens, 100))).ids());
    let removed = bench.worker.session_info(ID).unwrap().removed as usize;
    bench.backend.fail_read(0);
    let other = Request { session: None, ..turn(&[3; 60], 4) };
    assert_eq!(bench.answer(other).ids(), alone(&[3; 60], 4));
    let lost = bench.worker.session_info(ID).unwrap();
    assert_eq!((lost.rows, lost.removed as usize, bench.stats().swaps), (0, removed, 0));
    let left = [&tokens[..5], &tokens[5 + removed..]].concat();
    assert_eq!(bench.answer(shifting(turn(&tokens, 3))).ids(), alone(&left, 3));
    bench.worker.close_session(ID);
    bench.assert_idle();
}
