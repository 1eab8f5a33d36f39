//! How requests end.

use super::*;

#[test]
fn an_end_token_stops_and_is_not_shown() {
    let mut bench = bench(&scripted(3, "Hi!"));
    let answer = bench.answer(greedy(&[1, 2, 3]));
    assert_eq!(answer.text(), "Hi!");
    assert_eq!(answer.ids(), [72, 105, 33, END]);
    assert_eq!(
        answer.tokens().iter().map(|token| token.kind == crate::event::TokenKind::End).collect::<Vec<_>>(),
        [false, false, false, true]
    );
    let finished = answer.finished();
    assert_eq!(finished.reason, FinishReason::Stop(StopCause::EndToken(END)));
    assert_eq!((finished.usage.prompt, finished.usage.completion, finished.usage.cached), (3, 4, 0));
    bench.assert_idle();
}

#[test]
fn token_counts_are_exact_and_no_forward_is_wasted() {
    for wanted in [1, 2, 5] {
        let mut bench = bench(&scripted(3, "abcdefgh"));
        let answer = bench.answer(Request { max_tokens: Some(wanted), ..greedy(&[1, 2, 3]) });
        assert_eq!(answer.text(), &"abcdefgh"[..wanted as usize]);
        assert_eq!(answer.finished().reason, FinishReason::Length);
        let finished = answer.finished();
        assert_eq!(finished.usage.completion, wanted);
        // The end of the prompt chose the first token; only what follows takes the time of a
        // decode.
        let decode = f64::from(wanted - 1) / finished.timings.predicted.as_secs_f64();
        assert_eq!(finished.decode_speed(), (wanted > 1).then_some(decode));
        assert_eq!(finished.prompt_speed(), Some(3.0 / finished.timings.prompt.as_secs_f64()));
        let stats = bench.stats();
        assert_eq!((stats.steps, stats.head_rows), (u64::from(wanted), u64::from(wanted)));
        assert_eq!(stats.tokens_fed, 3 + u64::from(wanted) - 1);
        assert_eq!(stats.generated_tokens, u64::from(wanted));
    }
}

#[test]
fn no_tokens_means_prefill_only() {
    let mut bench = bench(&scripted(20, "abc"));
    let answer = bench.answer(Request { max_tokens: Some(0), ..greedy(&[1; 20]) });
    let progress = |done| Event::Progress(Progress { done, total: 20 });
    assert_eq!(answer.events[..3], [progress(8), progress(16), progress(20)]);
    assert_eq!(answer.events.len(), 4);
    assert_eq!(answer.finished().reason, FinishReason::Length);
    assert_eq!(answer.finished().usage.completion, 0);
    assert_eq!((bench.stats().steps, bench.stats().head_runs), (3, 0));
    bench.assert_idle();
}

#[test]
fn the_context_ends_a_generation() {
    let mut bench = bench(&NullBackend::new());
    let answer = bench.answer(Request { max_tokens: Some(1000), ..greedy(&[1; 100]) });
    assert_eq!(answer.finished().reason, FinishReason::Length);
    assert_eq!(answer.finished().usage.completion, 28);
    assert_eq!(bench.stats().tokens_fed, 127);
    let answer = bench.answer(greedy(&[1; 127]));
    assert_eq!(answer.finished().usage.completion, 1);
    assert_eq!(answer.finished().reason, FinishReason::Length);
}

#[test]
fn memory_ends_a_generation_that_is_alone() {
    let mut bench = Bench::new(&NullBackend::new(), small(2));
    let answer = bench.answer(greedy(&[1; 10]));
    assert_eq!(answer.finished().reason, FinishReason::Length);
    // 32 rows fit, and the token after them is not fed.
    assert_eq!(answer.finished().usage.completion, 23);
    assert_eq!(bench.stats().tokens_fed, 32);
    bench.assert_idle();
}

#[test]
fn a_stop_string_over_tokens_is_cut_and_what_precedes_it_kept() {
    let mut bench = bench(&scripted(1, "one END two"));
    let stop = vec!["two".to_owned(), " END".to_owned()];
    let answer = bench.answer(Request { stop, ..greedy(&[1]) });
    assert_eq!(answer.text(), "one");
    let reason = FinishReason::Stop(StopCause::StopString(" END".to_owned()));
    assert_eq!(answer.finished().reason, reason);
    assert_eq!(answer.finished().usage.completion, 7);
    bench.assert_idle();
}

#[test]
fn held_text_is_released_by_either_end() {
    for (max_tokens, reason) in
        [(Some(3), FinishReason::Length), (None, FinishReason::Stop(StopCause::EndToken(END)))]
    {
        let mut bench = bench(&scripted(1, "a E"));
        let answer = bench.answer(Request { max_tokens, stop: vec![" END".to_owned()], ..greedy(&[1]) });
        assert_eq!(answer.text(), "a E");
        assert_eq!(answer.finished().reason, reason);
    }
}

#[test]
fn characters_come_out_whole() {
    let mut bench = bench(&scripted(1, "né👍"));
    let answer = bench.answer(greedy(&[1]));
    let texts: Vec<&str> = answer.tokens().iter().map(|token| token.text.as_str()).collect();
    assert_eq!(texts, ["n", "", "é", "", "", "", "👍", ""]);
    let cut = bench.answer(Request { max_tokens: Some(5), ..greedy(&[1]) });
    assert_eq!(cut.text(), "né\u{fffd}");
}

#[test]
fn end_tokens_can_be_put_off_or_ignored() {
    let mut bench = bench(&scripted(1, ""));
    let answer = bench.answer(Request { min_tokens: 2, ..greedy(&[1]) });
    assert_eq!(answer.ids(), [0, 0, END]);
    let answer = bench.answer(Request { ignore_eos: true, max_tokens: Some(4), ..greedy(&[1]) });
    assert_eq!(answer.ids(), [0; 4]);
    assert_eq!(answer.finished().reason, FinishReason::Length);
}
