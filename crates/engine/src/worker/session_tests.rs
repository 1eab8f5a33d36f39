use std::collections::BTreeSet;

use minfer_graph::NullBackend;

use super::*;
use crate::EngineConfig;
use crate::event::{FinishReason, Usage};
use crate::kv::most_rope_offsets;
use crate::kv::session::SessionError;
use crate::request::{ContextShift, Request};
use crate::session::{RowStorage, SessionId};
use crate::test_model::{Answer, Bench, Shape, eloquent, greedy};

pub(super) const ID: SessionId = SessionId(1);
const KEEP: u32 = 5;

/// A context of `n_ctx` tokens and so many blocks of 16 positions.
pub(super) fn bench(n_ctx: usize, blocks: u32) -> Bench {
    let mut bench = bench_on(&eloquent(), n_ctx, blocks);
    bench.worker.open_session(ID, None);
    bench
}

/// As [`bench`], with room for everything, steps of so many tokens, and no rows of earlier
/// requests.
fn bench_with(n_ctx: usize, n_batch: usize) -> Bench {
    let config = EngineConfig { n_ctx, n_batch, prefix_cache: false, ..Shape::default().config };
    let mut bench = Bench::new(&eloquent(), Shape { config, ..Shape::default() });
    bench.worker.open_session(ID, None);
    bench
}

fn bench_on(backend: &NullBackend, n_ctx: usize, blocks: u32) -> Bench {
    let config = EngineConfig { n_ctx, ..Shape::default().config };
    Bench::new(backend, Shape { config, blocks, ..Shape::default() })
}

/// A request of a conversation for a few tokens, which never ends early.
pub(super) fn turn(prompt: &[u32], tokens: u32) -> Request {
    Request { session: Some(ID), max_tokens: Some(tokens), ignore_eos: true, ..greedy(prompt) }
}

pub(super) fn shifting(request: Request) -> Request {
    Request { context_shift: Some(ContextShift { keep: KEEP }), ..request }
}

/// The same tokens asked for alone, in a store of its own.
pub(super) fn alone(prompt: &[u32], tokens: u32) -> Vec<u32> {
    let request = Request { session: None, ..turn(prompt, tokens) };
    bench_on(&eloquent(), 2048, 256).answer(request).ids()
}

/// The tokens of a conversation whose rows are left, and the one that is pending.
fn left(bench: &Bench) -> Vec<u32> {
    let session = &bench.worker.sessions[&ID];
    let gone = |index: usize| session.history.removed().iter().any(|range| range.contains(&(index as u32)));
    let tokens = session.history.tokens.iter().enumerate();
    tokens.filter(|(index, _)| !gone(*index)).map(|(_, &token)| token).collect()
}

/// Distinct rotations of the conversation's rows that queries are turned on for: what the facade
/// reckons with.
fn rope_offsets(bench: &Bench) -> usize {
    let RowStorage::Cached(kv) = bench.worker.sessions[&ID].rows else { return 0 };
    let offsets = bench.worker.store.rows(0, kv).into_iter().map(|run| run.rope_offset);
    offsets.filter(|&offset| offset > 0).collect::<BTreeSet<_>>().len()
}

/// Short turns, long ones and answers that are taken back make shifts come at any number of rows.
#[test]
fn rows_have_few_rope_offsets_however_often_they_are_shifted() {
    let mut most = 0;
    for seed in 0..16u32 {
        let mut bench = bench(64, 64);
        let mut tokens: Vec<u32> = (10..10 + KEEP).collect();
        for number in 0..40u32 {
            let drawn = (seed * 7919 + number * 104_729 + seed * number).wrapping_mul(2_654_435_761) >> 16;
            tokens.extend((0..1 + drawn % 50).map(|index| 100 + (number + index) % 90));
            tokens.extend(bench.answer(shifting(turn(&tokens, 1 + drawn / 64 % 40))).ids());
            most = most.max(rope_offsets(&bench));
            assert!(rope_offsets(&bench) <= most_rope_offsets(64) as usize, "{seed}, turn {number}");
            if drawn % 3 == 0 {
                let taken_back = (drawn / 512 % 30) as usize;
                tokens.truncate(tokens.len() - taken_back.min(tokens.len() - KEEP as usize));
            }
        }
    }
    assert!(most >= 2, "{most}");
}

/// A kept beginning that grows with every turn gathers rows of every shift, until their angles were
/// not reckoned with.
#[test]
fn rows_have_few_rope_offsets_however_the_kept_ones_grow() {
    let mut bench = bench(512, 64);
    let (mut tokens, mut most) = (Vec::new(), 0);
    let ended = (0..100).find_map(|number| {
        tokens.extend((0..20).map(|index| 100 + (number + index) % 90));
        let context_shift = Some(ContextShift { keep: number * 4 });
        let (_, events) = bench.submit(Request { context_shift, ..turn(&tokens, 300) }).unwrap();
        bench.drain();
        let answer = Answer::of(&events);
        tokens.extend(answer.ids());
        most = most.max(rope_offsets(&bench));
        let last = answer.last();
        matches!(last, Event::Failed(_)).then(|| last.clone())
    });
    assert_eq!(ended, Some(Event::Failed(EngineError::NothingToForget { n_ctx: 512 })));
    assert_eq!(most, most_rope_offsets(512) as usize);
}

#[test]
fn each_turn_feeds_only_what_is_new() {
    let mut bench = bench(128, 64);
    let mut tokens: Vec<u32> = (10..30).collect();
    let mut fed = 0;
    for turn_number in 0..4 {
        let answer = bench.answer(turn(&tokens, 5));
        assert_eq!(answer.ids(), alone(&tokens, 5));
        let cached = if turn_number == 0 { 0 } else { tokens.len() as u32 - 4 };
        let usage =
            Usage { prompt: tokens.len() as u32, completion: 5, cached, reused: cached, ..Usage::default() };
        assert_eq!(answer.finished().usage, usage);
        // The last token of an answer is fed with the next turn.
        fed += u64::from(usage.prompt - usage.cached) + 4;
        assert_eq!(bench.stats().tokens_fed, fed);
        tokens.extend(answer.ids());
        tokens.extend([50 + turn_number, 60, 61]);
    }
    bench.worker.close_session(ID);
    bench.assert_idle();
}

#[test]
fn a_prompt_that_parts_from_the_conversation_rewinds_it() {
    let mut bench = bench(128, 64);
    let mut tokens: Vec<u32> = (10..50).collect();
    tokens.extend(bench.answer(turn(&tokens, 5)).ids());
    tokens[33] = 200;
    let answer = bench.answer(turn(&tokens, 5));
    assert_eq!((answer.finished().usage.cached, answer.finished().usage.reused), (33, 33));
    assert_eq!(answer.ids(), alone(&tokens, 5));
    let shorter = &tokens[..20];
    let answer = bench.answer(turn(shorter, 5));
    assert_eq!(answer.finished().usage.cached, 19, "the last token is always fed");
    assert_eq!(answer.ids(), alone(shorter, 5));
}

#[test]
fn twenty_turns_past_the_context_feed_only_their_own_tokens() {
    let mut bench = bench(64, 64);
    let mut tokens: Vec<u32> = (10..10 + KEEP).collect();
    let mut shifts = 0;
    for number in 0..30u32 {
        tokens.extend((0..7).map(|index| 100 + number + index));
        let before = bench.stats().tokens_fed;
        let forgotten = bench.worker.session_info(ID).map_or(0, |known| known.removed);
        let answer = bench.answer(shifting(turn(&tokens, 6)));
        let usage = answer.finished().usage;
        assert_eq!(usage.reused, usage.cached - forgotten, "turn {number}");
        let new = if number == 0 { KEEP + 7 } else { 8 };
        assert_eq!(usage.prompt - usage.cached, new, "turn {number}");
        assert_eq!(bench.stats().tokens_fed - before, u64::from(new) + 5, "turn {number}");
        tokens.extend(answer.ids());
        let left = left(&bench);
        assert_eq!(left[..KEEP as usize], tokens[..KEEP as usize], "kept tokens are never forgotten");
        assert!(left.len() <= 65 && tokens.ends_with(&left[KEEP as usize..]));
        assert_eq!(usage.removed as usize, tokens.len() - left.len());
        assert!(rope_offsets(&bench) <= 64u32.ilog2() as usize + 2);
        // A turn in which nothing was forgotten answers what the tokens that are left are answered
        // alone.
        if bench.stats().shifts == shifts {
            let (prompt, said) = left.split_at(left.len() - 6);
            assert_eq!(alone(prompt, 6), said);
        }
        shifts = bench.stats().shifts;
    }
    assert!(shifts >= 5, "{shifts}");
}

#[test]
fn a_generation_goes_on_past_the_context_alone_too() {
    let mut bench = bench(64, 64);
    let request = Request { session: None, ..shifting(turn(&[7; 20], 500)) };
    let answer = bench.answer(request);
    assert_eq!((answer.ids().len(), &answer.finished().reason), (500, &FinishReason::Length));
    assert!(answer.finished().usage.removed > 400);
    bench.assert_idle();
}

#[test]
fn a_generation_that_forgets_ends_after_a_context_of_tokens_unless_told_otherwise() {
    for (session, prompt) in [(None, 20), (Some(ID), 20), (None, 63)] {
        let mut bench = bench(64, 64);
        for (max_tokens, generated) in [(None, 64), (Some(0), 0), (Some(1), 1), (Some(65), 65)] {
            let request = Request { session, max_tokens, ..shifting(turn(&vec![7; prompt], 0)) };
            let answer = bench.answer(request);
            assert_eq!(
                (answer.ids().len(), &answer.finished().reason),
                (generated, &FinishReason::Length),
                "{session:?}, {prompt} tokens, {max_tokens:?}"
            );
        }
    }
    // Without a shift the context ends it.
    let answer = bench(64, 64).answer(Request { session: None, max_tokens: None, ..turn(&[7; 20], 0) });
    assert_eq!((answer.ids().len(), &answer.finished().reason), (44, &FinishReason::Length));
}

#[test]
fn kept_tokens_take_their_room_once() {
    for (keep, first, second) in [(40, 63, 0), (40, 50, 23), (10, 30, 53), (62, 63, 1)] {
        let mut bench = bench(64, 64);
        let keeping = |request| Request { context_shift: Some(ContextShift { keep }), ..request };
        let mut tokens: Vec<u32> = (10..10 + first).collect();
        tokens.extend(bench.answer(keeping(turn(&tokens, 1))).ids());
        assert_eq!(tokens.len(), first as usize + 1, "{keep} of {first} tokens are kept");
        tokens.extend(1..second);
        assert_eq!(bench.answer(keeping(turn(&tokens, 1))).ids().len(), 1, "{keep}, {first}, {second}");
        // One more than the context holds beside what is kept.
        let fed = bench.worker.sessions[&ID].fed;
        let excess: Vec<u32> = (1..=64 - keep.min(fed as u32)).collect();
        let long = [&bench.worker.sessions[&ID].history.tokens[..fed], &excess].concat();
        let refusal = bench.answer(keeping(turn(&long, 1)));
        assert!(
            matches!(refusal.last(), Event::Failed(EngineError::ExceedsContext { .. })),
            "{keep}, {first}"
        );
    }
}

#[test]
fn what_has_no_room_is_refused_with_numbers_and_the_conversation_stays() {
    let mut bench = bench(64, 64);
    let mut tokens: Vec<u32> = (10..40).collect();
    tokens.extend(bench.answer(turn(&tokens, 10)).ids());
    let before = bench.worker.session_info(ID);
    let long: Vec<u32> = tokens.iter().copied().chain(100..130).collect();
    let refusal = bench.answer(turn(&long, 5));
    let error = EngineError::ExceedsContext { n_prompt_tokens: 70, n_new_tokens: 31, n_ctx: 64 };
    assert_eq!(refusal.last(), &Event::Failed(error));
    let longer: Vec<u32> = tokens.iter().copied().chain(100..159).collect();
    let refusal = bench.answer(shifting(turn(&longer, 5)));
    assert!(matches!(refusal.last(), Event::Failed(EngineError::ExceedsContext { n_new_tokens: 60, .. })));
    assert_eq!(bench.worker.session_info(ID), before);
    assert_eq!(bench.answer(shifting(turn(&long, 5))).ids().len(), 5);
    let keep = Request { context_shift: Some(ContextShift { keep: 63 }), ..turn(&tokens, 5) };
    assert!(bench.submit(keep).unwrap_err().to_string().contains("63 tokens that are never forgotten"));
    bench.worker.close_session(ID);
    assert_eq!(bench.answer(turn(&tokens, 5)).last(), &Event::Failed(EngineError::NoSession));
    bench.assert_idle();
}

#[test]
fn a_failed_or_cancelled_turn_leaves_the_rows_of_those_before() {
    let mut bench = bench(128, 64);
    let mut tokens: Vec<u32> = (10..30).collect();
    tokens.extend(bench.answer(turn(&tokens, 5)).ids());
    tokens.extend([90, 91, 92]);
    bench.backend.fail_run(1);
    let failed = bench.answer(turn(&tokens, 5));
    assert!(matches!(failed.last(), Event::Failed(EngineError::ModelExecutor(_))));
    let answer = bench.answer(turn(&tokens, 5));
    assert_eq!(answer.finished().usage.cached, 24);
    assert_eq!(answer.ids(), alone(&tokens, 5));
    let (id, events) = bench.submit(turn(&tokens, 50)).unwrap();
    (0..4).for_each(|_| assert!(bench.worker.step()));
    bench.worker.cancel(id);
    assert_eq!(Answer::of(&events).last(), &Event::Cancelled);
    let answer = bench.answer(turn(&tokens, 5));
    assert_eq!(answer.finished().usage.cached, 27, "all but the last token");
    assert_eq!(answer.ids(), alone(&tokens, 5));
}

#[test]
fn turns_of_one_conversation_come_one_after_the_other() {
    let mut bench = bench(128, 64);
    let (_, first) = bench.submit(turn(&[10; 12], 5)).unwrap();
    let (_, second) = bench.submit(turn(&[10; 12], 5)).unwrap();
    bench.worker.step();
    assert_eq!((bench.stats().running, bench.stats().waiting), (1, 1));
    bench.drain();
    let (first, second) = (Answer::of(&first), Answer::of(&second));
    assert_eq!(first.ids(), second.ids());
    assert_eq!(second.finished().usage.cached, 11);
}

#[test]
fn an_idle_conversation_gives_its_cells_to_others_and_goes_on_the_same() {
    for shifted in [false, true] {
        // A shifted sequence may leave parts of two blocks empty.
        let mut bench = bench(64, if shifted { 6 } else { 4 });
        let mut tokens: Vec<u32> = (10..40).collect();
        let length = if shifted { 60 } else { 20 };
        tokens.extend(bench.answer(shifting(turn(&tokens, length))).ids());
        tokens.extend([90, 91, 92]);
        let mut undisturbed = self::bench(64, 64);
        let mut same: Vec<u32> = (10..40).collect();
        same.extend(undisturbed.answer(shifting(turn(&same, length))).ids());
        same.extend([90, 91, 92]);
        assert_eq!(tokens, same);
        // Three blocks for somebody else.
        let other = Request { session: None, ..turn(&[3; 40], 8) };
        assert_eq!(bench.answer(other).ids(), alone(&[3; 40], 8));
        assert_eq!(bench.worker.session_info(ID).unwrap().removed > 0, shifted);
        let (answer, expected) =
            (bench.answer(shifting(turn(&tokens, 5))), undisturbed.answer(shifting(turn(&same, 5))));
        assert_eq!(answer.ids(), expected.ids(), "shifted: {shifted}");
        if shifted {
            assert_eq!(answer.finished().usage, expected.finished().usage, "nothing was computed again");
        }
        bench.worker.close_session(ID);
        bench.assert_idle();
    }
}

#[test]
fn a_shifted_sequence_is_not_recomputed_when_it_is_preempted() {
    let long = |seed: u32| Request { session: None, ..shifting(turn(&[seed; 20], 400)) };
    let expected: Vec<_> = (1..3).map(|seed| bench(64, 64).answer(long(seed)).ids()).collect();
    let mut swaps = 0;
    // Room for one of them in whatever state it is, and for both only now and then.
    for blocks in 7..12 {
        let mut tight = bench(64, blocks);
        let events: Vec<_> = (1..3).map(|seed| tight.submit(long(seed)).unwrap().1).collect();
        tight.drain();
        let crowded: Vec<_> = events.iter().map(|events| Answer::of(events).ids()).collect();
        assert_eq!(crowded, expected, "{blocks} blocks");
        swaps += tight.stats().swaps;
        tight.assert_idle();
    }
    assert!(swaps > 0);
}

/// Whenever its rows are given up, what a sequence forgets once they are there again is what it
/// would have forgotten.
#[test]
fn rows_that_are_computed_again_change_nothing_about_what_is_forgotten() {
    let long = || Request { session: None, ..shifting(turn(&[7; 20], 100)) };
    // Steps that do not end where the context does.
    let bench = || bench_with(64, 7);
    let expected = bench().answer(long()).ids();
    let first: Vec<u32> = (10..60).collect();
    let second: Vec<u32> = first.iter().copied().chain(100..130).collect();
    let mut undisturbed = bench();
    undisturbed.answer(turn(&first, 0));
    let resumed = undisturbed.answer(shifting(turn(&second, 30)));
    assert!(resumed.finished().usage.removed > 0);
    for steps in 0..60 {
        let mut bench = bench();
        let disturbed = |bench: &mut Bench, request| {
            let (_, events) = bench.submit(request).unwrap();
            (0..steps).for_each(|_| assert!(bench.worker.step()));
            bench.worker.admit();
            if bench.worker.running.first().is_some_and(|sequence| sequence.history.removed().is_empty()) {
                bench.worker.preempt(0, None);
            }
            bench.drain();
            Answer::of(&events).ids()
        };
        assert_eq!(disturbed(&mut bench, long()), expected, "after {steps} steps");
        bench.answer(turn(&first, 0));
        assert_eq!(disturbed(&mut bench, shifting(turn(&second, 30))), resumed.ids(), "after {steps} steps");
    }
}

/// What a long turn forgets does not depend on how many tokens a step feeds.
#[test]
fn chunks_do_not_choose_what_is_forgotten() {
    let answers = [8, 3, 64].map(|n_batch| {
        let mut bench = bench_with(64, n_batch);
        let mut tokens: Vec<u32> = (10..50).collect();
        let mut said = Vec::new();
        for number in 0..6 {
            said.extend(bench.answer(shifting(turn(&tokens, 7))).ids());
            tokens.extend_from_slice(&said[said.len() - 7..]);
            tokens.extend((0..20 + number).map(|index| 100 + 3 * number + index));
        }
        assert!(bench.stats().shifts > 2);
        said
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0], answers[2]);
}

#[test]
fn a_saved_conversation_goes_on_elsewhere_as_if_it_had_never_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    for shifted in [false, true] {
        let mut bench = bench(64, 64);
        let mut tokens: Vec<u32> = (10..40).collect();
        tokens.extend(bench.answer(shifting(turn(&tokens, if shifted { 90 } else { 9 }))).ids());
        bench.save(ID, &path, b"host".to_vec()).unwrap();
        tokens.extend([90, 91, 92]);
        let expected = bench.answer(shifting(turn(&tokens, 9)));
        let mut elsewhere = bench_on(&eloquent(), 64, 128);
        assert_eq!(elsewhere.load(ID, &path, None).unwrap(), b"host");
        let answer = elsewhere.answer(shifting(turn(&tokens, 9)));
        assert_eq!(answer.ids(), expected.ids());
        assert_eq!(answer.finished().usage, expected.finished().usage);
        assert_eq!(elsewhere.stats().tokens_fed, 3 + 1 + 8, "the pending token and what is new");
        elsewhere.worker.close_session(ID);
        elsewhere.assert_idle();
    }
}

#[test]
fn a_file_that_cannot_be_used_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    let mut bench = bench(64, 64);
    let tokens: Vec<u32> = (10..50).collect();
    bench.answer(turn(&tokens, 9));
    assert!(matches!(bench.save(SessionId(9), &path, Vec::new()), Err(SessionError::NoSession)));
    let (_, events) = bench.submit(turn(&tokens, 9)).unwrap();
    bench.worker.step();
    assert!(matches!(bench.save(ID, &path, Vec::new()), Err(SessionError::Busy)));
    bench.drain();
    drop(events);
    bench.save(ID, &path, Vec::new()).unwrap();
    let refused = |bench: &mut Bench| bench.load(SessionId(2), &path, None).unwrap_err().to_string();
    let mut small = bench_on(&eloquent(), 32, 64);
    assert_eq!(refused(&mut small), "it holds a sequence of length 48, the context has 32");
    small.assert_idle();
    let mut full = bench_on(&eloquent(), 64, 8);
    let _running = full.submit(Request { session: None, ..turn(&[1; 60], 4) }).unwrap();
    let _also = full.submit(Request { session: None, ..turn(&[2; 60], 4) }).unwrap();
    (0..11).for_each(|_| assert!(full.worker.step()));
    assert!(refused(&mut full).contains("blocks"), "{}", refused(&mut full));
    full.backend.refuse_allocation(1);
    full.drain();
    assert!(full.worker.sessions.is_empty());
}

#[test]
fn a_short_prompt_does_not_wait_for_the_end_of_a_long_one() {
    let mut bench = bench(128, 64);
    let (_, _long) = bench.submit(Request { session: None, ..turn(&[1; 120], 2) }).unwrap();
    let (_, short) = bench.submit(Request { session: None, ..turn(&[2; 3], 1) }).unwrap();
    (0..3).for_each(|_| assert!(bench.worker.step()));
    assert!(matches!(Answer::of(&short).last(), Event::Finished(_)));
}

#[test]
fn a_conversation_whose_turn_is_preempted_goes_on() {
    for shifted in [false, true] {
        let (n_ctx, tokens) = if shifted { (64, 300) } else { (256, 100) };
        let ids = [SessionId(1), SessionId(2)];
        let long = |id: SessionId| {
            let request = turn(&[id.0 as u32; 20], tokens);
            Request { session: Some(id), ..if shifted { shifting(request) } else { request } }
        };
        let expected = ids.map(|id| {
            let mut roomy = bench(n_ctx, 64);
            roomy.answer(Request { session: None, ..long(id) }).ids()
        });
        let mut preemptions = 0;
        for blocks in 8..13 {
            let mut tight = bench(n_ctx, blocks);
            ids.iter().for_each(|&id| tight.worker.open_session(id, None));
            let events = ids.map(|id| tight.submit(long(id)).unwrap().1);
            tight.drain();
            let answers = events.map(|events| Answer::of(&events).ids());
            assert_eq!(answers, expected, "shifted: {shifted}, {blocks} blocks");
            for id in ids {
                let known = tight.worker.session_info(id).unwrap();
                assert_eq!(known.tokens.len() as u32, 20 + tokens);
                tight.worker.close_session(id);
            }
            preemptions += tight.stats().preemptions;
            tight.assert_idle();
        }
        assert!(preemptions > 0, "shifted: {shifted}");
    }
}
