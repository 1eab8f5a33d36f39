//! When a waiting request starts beside running ones.

use super::session_tests::{ID, alone, bench, shifting, turn};
use super::swap_tests::host;
use crate::event::Event;
use crate::request::Request;
use crate::session::SessionId;
use crate::test_model::{Answer, Bench};
use crate::{EngineError, Events};

fn without_session(request: Request) -> Request {
    Request { session: None, ..request }
}

/// A request that decodes for a while.
fn decoding(bench: &mut Bench, prompt: u32, tokens: u32) -> Events {
    let (_, events) = bench.submit(without_session(turn(&vec![3; prompt as usize], tokens))).unwrap();
    (0..prompt.div_ceil(8)).for_each(|_| assert!(bench.worker.step()));
    events
}

/// Removed tokens need no blocks, and rows that are cached need no new ones.
#[test]
fn a_shifted_conversation_asks_for_the_room_that_it_needs() {
    let mut undisturbed = bench(64, 24);
    let mut tokens: Vec<u32> = (10..40).collect();
    tokens.extend(undisturbed.answer(shifting(turn(&tokens, 380))).ids());
    let said = tokens.clone();
    tokens.extend([90, 91, 92]);
    let expected = undisturbed.answer(shifting(turn(&tokens, 5))).ids();
    for is_swapped in [false, true] {
        let mut bench = bench(64, 24);
        assert_eq!(bench.answer(shifting(turn(&said[..30], 380))).ids(), said[30..]);
        let other = decoding(&mut bench, 100 - 60, 20);
        if is_swapped {
            assert!(bench.worker.evict_session(ID));
        }
        let (_, again) = bench.submit(shifting(turn(&tokens, 5))).unwrap();
        let (_, small) = bench.submit(without_session(turn(&[4; 5], 3))).unwrap();
        assert!(bench.worker.step());
        assert_eq!((bench.stats().running, bench.stats().waiting), (3, 0), "swapped: {is_swapped}");
        bench.drain();
        assert_eq!(Answer::of(&again).ids(), expected);
        assert_eq!(Answer::of(&small).ids(), alone(&[4; 5], 3));
        assert_eq!(Answer::of(&other).ids(), alone(&[3; 40], 20));
        assert_eq!(bench.stats().preemptions, 0);
        bench.worker.close_session(ID);
        bench.assert_idle();
    }
}

#[test]
fn a_conversation_that_will_be_refused_waits_for_no_room() {
    let mut bench = bench(128, 4);
    let _other = decoding(&mut bench, 20, 30);
    let (_, refused) = bench.submit(Request { session: Some(SessionId(9)), ..turn(&[5; 60], 4) }).unwrap();
    assert!(bench.worker.step());
    assert_eq!(Answer::of(&refused).last(), &Event::Failed(EngineError::NoSession));
}

/// An idle conversation is evicted for a waiting request beside a running one, and later continues
/// with the same answer.
#[test]
fn idle_conversations_are_evicted_for_a_waiting_request() {
    for shifted in [false, true] {
        let request = |tokens: &[u32], count| match shifted {
            true => shifting(turn(tokens, count)),
            false => turn(tokens, count),
        };
        let n_ctx = if shifted { 64 } else { 128 };
        let first: Vec<u32> = (10..50).collect();
        let said = if shifted { 80 } else { 50 };
        let mut undisturbed = bench(n_ctx, 64);
        let mut tokens = [&first[..], &undisturbed.answer(request(&first, said)).ids()].concat();
        tokens.extend([90, 91, 92]);
        let expected = undisturbed.answer(request(&tokens, 5)).ids();
        let mut bench = bench(n_ctx, if shifted { 7 } else { 8 });
        bench.answer(request(&first, said));
        let other = decoding(&mut bench, 4, 12);
        assert!(bench.worker.session_info(ID).unwrap().rows > 48 && bench.stats().swaps == 0);
        let (_, waiting) = bench.submit(without_session(turn(&[5; 20], 4))).unwrap();
        assert!(bench.worker.step());
        assert_eq!((bench.stats().running, bench.stats().waiting), (2, 0), "shifted: {shifted}");
        assert_eq!(bench.stats().swaps, u64::from(shifted));
        bench.drain();
        assert_eq!(Answer::of(&waiting).ids(), alone(&[5; 20], 4));
        assert_eq!(Answer::of(&other).ids(), alone(&[3; 4], 12));
        assert_eq!(bench.answer(request(&tokens, 5)).ids(), expected, "shifted: {shifted}");
        bench.worker.close_session(ID);
        bench.assert_idle();
    }
}

/// Nothing is evicted if the request would still not fit, or if rows would be lost for good.
#[test]
fn idle_conversations_are_not_evicted_in_vain() {
    let mut roomy = bench(128, 8);
    let tokens: Vec<u32> = (10..50).collect();
    roomy.answer(turn(&tokens, 10));
    let _other = decoding(&mut roomy, 40, 30);
    let kept = roomy.worker.session_info(ID);
    let (_, waiting) = roomy.submit(without_session(turn(&[5; 100], 4))).unwrap();
    assert!(roomy.worker.step());
    assert_eq!((roomy.stats().waiting, roomy.worker.session_info(ID)), (1, kept));
    roomy.drain();
    assert_eq!(Answer::of(&waiting).ids(), alone(&[5; 100], 4));

    let mut bench = bench(64, 7);
    (bench.worker.host, _) = host(0);
    bench.answer(shifting(turn(&tokens, 80)));
    let kept = bench.worker.session_info(ID);
    let _other = decoding(&mut bench, 4, 8);
    let (_, waiting) = bench.submit(without_session(turn(&[5; 20], 4))).unwrap();
    assert!(bench.worker.step());
    assert_eq!((bench.stats().waiting, bench.worker.session_info(ID)), (1, kept));
    bench.drain();
    assert_eq!(Answer::of(&waiting).ids(), alone(&[5; 20], 4));
}

/// Without reuse a request needs blocks of its own.
#[test]
fn a_request_that_reuses_nothing_is_admitted_when_it_fits() {
    for reuse in [true, false] {
        let mut bench = bench(128, 6);
        let prompt: Vec<u32> = (10..58).collect();
        let (_, first) = bench.submit(without_session(turn(&prompt, 30))).unwrap();
        (0..7).for_each(|_| assert!(bench.worker.step()));
        let second = Request { reuse, ..without_session(turn(&prompt, 10)) };
        let (_, second) = bench.submit(second).unwrap();
        assert!(bench.worker.step());
        assert_eq!(bench.stats().running, if reuse { 2 } else { 1 });
        bench.drain();
        assert_eq!(Answer::of(&first).ids(), alone(&prompt, 30));
        assert_eq!(Answer::of(&second).ids(), alone(&prompt, 10));
        assert_eq!(bench.stats().preemptions, 0, "reuse: {reuse}");
    }
}
