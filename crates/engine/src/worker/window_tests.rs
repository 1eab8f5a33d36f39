//! Conversations of a model with an attention window: truncation, context shift, and the blocks
//! they need.

use super::session_tests::{ID, shifting, turn};
use crate::event::{Event, FinishReason};
use crate::request::Request;
use crate::test_model::{Answer, Bench, Shape, eloquent, greedy};
use crate::{EngineConfig, EngineError};

const N_CTX: usize = 64;
const WINDOW: u32 = 16;

fn bench_with(n_batch: usize) -> Bench {
    let config = EngineConfig { n_ctx: N_CTX, n_batch, ..Shape::default().config };
    let mut bench = Bench::new(&eloquent(), Shape { config, window: Some(WINDOW), ..Shape::default() });
    bench.worker.open_session(ID, None);
    bench
}

/// The answer of a model without windows in a store of its own.
fn alone(prompt: &[u32], tokens: u32) -> Vec<u32> {
    let request = Request { max_tokens: Some(tokens), ignore_eos: true, ..greedy(prompt) };
    Bench::new(&eloquent(), Shape::default()).answer(request).ids()
}

/// A conversation of 146 tokens, of which 87 are removed.
fn shifted(n_batch: usize) -> (Bench, Vec<u32>) {
    let mut bench = bench_with(n_batch);
    let mut tokens: Vec<u32> = (10..40).collect();
    tokens.extend(bench.answer(shifting(turn(&tokens, 116))).ids());
    assert_eq!(bench.worker.session_info(ID).unwrap().removed, 87);
    (bench, tokens)
}

/// The given first tokens of the conversation without the removed ones.
fn left(bench: &Bench, tokens: &[u32]) -> Vec<u32> {
    let removed = bench.worker.sessions[&ID].history.removed();
    let gone = |index: usize| removed.iter().any(|range| range.contains(&(index as u32)));
    tokens.iter().enumerate().filter(|(index, _)| !gone(*index)).map(|(_, &token)| token).collect()
}

/// Steps until there is nothing to do; no sequence ever has more positions than the context.
fn drain(bench: &mut Bench) {
    while bench.worker.has_work() && bench.worker.step() {
        check_positions(bench);
    }
}

fn check_positions(bench: &Bench) {
    for id in bench.worker.store.ids() {
        assert!(bench.worker.store.length(id) as usize <= N_CTX);
    }
}

fn answer(bench: &mut Bench, request: Request) -> Answer {
    let (_, events) = bench.submit(request).unwrap();
    drain(bench);
    Answer::of(&events)
}

#[test]
fn a_shifted_conversation_cut_behind_its_window_is_recomputed() {
    for shifts in [true, false] {
        let asked = |prompt: &[u32], tokens| match shifts {
            true => shifting(turn(prompt, tokens)),
            false => turn(prompt, tokens),
        };
        for cut in [0, 1, 5, 17, 30, 40, 53] {
            let (mut bench, mut tokens) = shifted(8);
            tokens.truncate(146 - cut);
            let left = left(&bench, &tokens);
            let again = answer(&mut bench, asked(&tokens, 4));
            assert_eq!(again.ids(), alone(&left, 4), "cut by {cut}, shift: {shifts}");
            assert_eq!(again.finished().usage.removed, 87);
            // It goes on as any other.
            tokens.extend(again.ids());
            let left = [&left[..], &again.ids()].concat();
            let more = answer(&mut bench, asked(&tokens, 1));
            assert_eq!((more.ids(), more.finished().usage.cached as usize), (alone(&left, 1), 149 - cut));
            // As long an answer as there is room for.
            let (mut bench, _) = shifted(8);
            let long = answer(&mut bench, asked(&tokens[..146 - cut], 1000));
            let room = N_CTX - (146 - cut - 87);
            assert_eq!(long.ids().len(), if shifts { 1000 } else { room }, "cut by {cut}");
        }
    }
}

#[test]
fn a_conversation_cut_to_what_it_had_forgotten_is_refused_with_numbers_or_computed_again() {
    for (cut, shifts) in [(55, true), (55, false), (80, true), (80, false)] {
        let (mut bench, mut tokens) = shifted(8);
        let before = bench.worker.session_info(ID);
        tokens.truncate(146 - cut);
        let request = turn(&tokens, 4);
        let refused = answer(&mut bench, if shifts { shifting(request) } else { request });
        let n_new_tokens = 146 - cut;
        let error = EngineError::ExceedsContext { n_prompt_tokens: n_new_tokens, n_new_tokens, n_ctx: N_CTX };
        assert_eq!(refused.last(), &Event::Failed(error));
        assert_eq!(bench.worker.session_info(ID), before, "the conversation stays");
        let whole = answer(&mut bench, turn(&tokens[..40], 4));
        assert_eq!((whole.ids(), whole.finished().usage.removed), (alone(&tokens[..40], 4), 0));
    }
}

/// The whole prompt fits the context, so removed tokens are fed again too.
#[test]
fn a_short_conversation_cut_behind_its_window_is_computed_from_its_beginning() {
    let mut bench = bench_with(8);
    let mut tokens: Vec<u32> = (10..40).collect();
    tokens.extend(answer(&mut bench, shifting(turn(&tokens, 50))).ids());
    assert_eq!(bench.worker.session_info(ID).unwrap().removed, 29);
    let again = answer(&mut bench, turn(&tokens[..60], 3));
    assert_eq!((again.ids(), again.finished().usage.removed), (alone(&tokens[..60], 3), 0));
    // Not shifted at all, cut behind the window, and then more than the context holds.
    let mut bench = bench_with(8);
    let mut tokens: Vec<u32> = (10..68).collect();
    answer(&mut bench, turn(&tokens, 1));
    tokens.truncate(20);
    tokens.extend(100..150);
    let long = answer(&mut bench, shifting(turn(&tokens, 2)));
    let left = [&tokens[..5], &tokens[12..]].concat();
    assert_eq!((long.ids(), long.finished().usage.removed), (alone(&left, 2), 7));
}

/// A request may be cancelled or preempted while its conversation is recomputed.
#[test]
fn a_conversation_can_be_interrupted_while_it_is_recomputed() {
    for steps in 1..9 {
        let (mut bench, mut tokens) = shifted(8);
        tokens.truncate(130);
        let left = left(&bench, &tokens);
        let (id, events) = bench.submit(shifting(turn(&tokens, 60))).unwrap();
        (0..steps).for_each(|_| assert!(bench.worker.step()));
        bench.worker.cancel(id);
        drop(events);
        let info = bench.worker.session_info(ID).unwrap();
        assert!(info.rows as usize <= left.len() + 4 && info.removed == 87, "{info:?}");
        let again = answer(&mut bench, shifting(turn(&tokens, 4)));
        assert_eq!(again.ids(), alone(&left, 4), "after {steps} steps");
        // The same where it is sent away in the meantime.
        let (mut bench, _) = shifted(8);
        let (_, events) = bench.submit(shifting(turn(&tokens, 4))).unwrap();
        (0..steps).for_each(|_| assert!(bench.worker.step()));
        if !bench.worker.running.is_empty() {
            bench.worker.preempt(0, None);
        }
        drain(&mut bench);
        assert_eq!(Answer::of(&events).ids(), alone(&left, 4), "after {steps} steps");
    }
}

/// Fewer tokens than a window remain behind the removed range, so the next token sees rows before
/// it that were released.
#[test]
fn a_shift_that_leaves_less_than_a_window_recomputes() {
    let answers = [8, 3, 64].map(|n_batch| {
        let mut bench = bench_with(n_batch);
        let mut tokens: Vec<u32> = (10..60).collect();
        tokens.extend(answer(&mut bench, shifting(turn(&tokens, 1))).ids());
        tokens.extend(100..151);
        let long = answer(&mut bench, shifting(turn(&tokens, 6)));
        // 38 tokens for the turn, with 7 left behind them; half of what is not kept once the answer
        // is past the context.
        assert_eq!((bench.stats().shifts, long.finished().usage.removed), (2, 38 + 29));
        let left = [&tokens[..5], &tokens[43..]].concat();
        assert_eq!(long.ids()[..1], alone(&left, 1));
        long.ids()
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0], answers[2]);
}

/// A window group needs blocks for its window and one step, whatever the context length.
#[test]
fn a_window_group_needs_blocks_for_its_window_and_one_step() {
    // 16 positions of the window and a step of 8 tokens, and two blocks more.
    for (slots, window_blocks) in [(1, 4), (3, 12)] {
        let config = EngineConfig { n_ctx: 128, n_slots: slots, ..Shape::default().config };
        let shape = Shape { config, blocks: 8 * slots as u32, window: Some(WINDOW), ..Shape::default() };
        let shape = Shape { window_blocks: Some(window_blocks), ..shape };
        let mut bench = Bench::new(&eloquent(), shape);
        assert_eq!(bench.worker.kv_tokens(), 128 * slots);
        let request = |seed: u32| Request { ignore_eos: true, ..greedy(&[seed; 100]) };
        let events: Vec<_> = (0..slots as u32).map(|seed| bench.submit(request(seed)).unwrap().1).collect();
        bench.worker.step();
        assert_eq!(bench.stats().running as usize, slots, "all are admitted");
        bench.drain();
        for (seed, events) in (0..).zip(&events) {
            let answer = Answer::of(events);
            assert_eq!((answer.ids().len(), &answer.finished().reason), (28, &FinishReason::Length));
            assert_eq!(answer.ids(), alone(&[seed; 100], 28));
        }
        assert_eq!(bench.stats().preemptions, 0);
        bench.assert_idle();
    }
}
