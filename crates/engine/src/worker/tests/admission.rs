//! What is admitted when.

use super::*;

#[test]
fn prompts_that_never_fit_are_refused_with_numbers() {
    let mut bench = Bench::new(&NullBackend::new(), small(2));
    let exceeds = SubmitError::ExceedsContext { n_prompt_tokens: 128, n_ctx: 128 };
    assert_eq!(bench.submit(greedy(&[1; 128])).unwrap_err(), exceeds);
    let only_fed = |count: usize| Request { max_tokens: Some(0), ..greedy(&vec![1; count]) };
    let exceeds = SubmitError::ExceedsContext { n_prompt_tokens: 129, n_ctx: 128 };
    assert_eq!(bench.submit(only_fed(129)).unwrap_err(), exceeds);
    let exceeds = SubmitError::ExceedsKv { n_prompt_tokens: 33, kv_tokens: 32 };
    assert_eq!(bench.submit(greedy(&[1; 33])).unwrap_err(), exceeds);
    assert_eq!(bench.answer(greedy(&[1; 32])).finished().usage.completion, 1);
}

#[test]
fn a_prompt_may_fill_the_context_where_nothing_is_generated() {
    let mut bench = Bench::new(&NullBackend::new(), small(8));
    let logprobs = Some(PromptLogprobs { top: 1 });
    let request = Request { max_tokens: Some(0), prompt_logprobs: logprobs, ..greedy(&[1; 128]) };
    let answer = bench.answer(request);
    let usage = &answer.finished().usage;
    assert_eq!((usage.prompt, usage.completion), (128, 0));
    assert_eq!(answer.finished().reason, FinishReason::Length);
    bench.assert_idle();
}

#[test]
fn slots_and_queue_are_bounds() {
    let mut bench = bench(&scripted(1, "abc"));
    let events: Vec<_> = (0..8).map(|_| bench.submit(greedy(&[1])).unwrap().1).collect();
    let full = SubmitError::QueueFull { n_slots: 3, queue: 5 };
    assert_eq!(bench.submit(greedy(&[1])).unwrap_err(), full);
    bench.worker.step();
    assert_eq!((bench.stats().running, bench.stats().waiting), (3, 5));
    assert_eq!(bench.submit(greedy(&[1])).unwrap_err(), full);
    bench.drain();
    assert!(events.iter().all(|events| Answer::of(events).text() == "abc"));
    assert_eq!(bench.answer(greedy(&[1])).text(), "abc");
    bench.assert_idle();
}

#[test]
fn a_refused_request_takes_no_place() {
    let mut bench = bench(&scripted(1, "abc"));
    for _ in 0..20 {
        assert!(bench.submit(greedy(&[])).is_err());
    }
    assert_eq!(bench.answer(greedy(&[1])).text(), "abc");
}
