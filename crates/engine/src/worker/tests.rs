use minfer_graph::{BackendError, NullBackend};
use proptest::prelude::*;

use super::STALLED_STEPS;
use crate::event::{Event, FinishReason, Progress, PromptRow, StopCause};
use crate::kv::Placement;
use crate::test_model::{Answer, Bench, END, Shape, eloquent, greedy, scripted};
use crate::{EngineConfig, EngineError, EventSink, PromptLogprobs, Request, SamplingParams, SubmitError};

fn bench(backend: &NullBackend) -> Bench {
    Bench::new(backend, Shape::default())
}

fn small(blocks: u32) -> Shape {
    Shape { blocks, ..Shape::default() }
}

/// A request for `tokens` sampled tokens with a seed.
fn sampled(prompt: &[u32], tokens: u32, seed: u64) -> Request {
    Request {
        max_tokens: Some(tokens),
        ignore_eos: true,
        seed: Some(seed),
        sampling: SamplingParams { temperature: 3.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..Default::default() },
        ..Request::new(prompt.to_vec())
    }
}

mod endings {
    use super::*;

    #[test]
    fn an_end_token_stops_and_is_not_shown() {
        let mut bench = bench(&scripted(3, "Hi!"));
        let answer = bench.answer(greedy(&[1, 2, 3]));
        assert_eq!(answer.text(), "Hi!");
        assert_eq!(answer.ids(), [72, 105, 33, END]);
        assert_eq!(
            answer.tokens().iter().map(|token| token.is_end).collect::<Vec<_>>(),
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
            assert_eq!(answer.finished().usage.completion, wanted);
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
}

mod faults {
    use super::*;

    #[test]
    fn a_failing_forward_fails_those_in_it_and_no_others() {
        for panics in [false, true] {
            for more in 0..4 {
                let mut bench = bench(&scripted(2, "abc"));
                let first = bench.submit(greedy(&[1, 2])).unwrap().1;
                let second = bench.submit(greedy(&[3, 4])).unwrap().1;
                if panics {
                    bench.backend.panic_run(more)
                } else {
                    bench.backend.fail_run(more)
                }
                while bench.stats().failed == 0 {
                    assert!(bench.worker.step());
                }
                bench.assert_idle();
                for events in [first, second] {
                    let answer = Answer::of(&events);
                    match answer.last() {
                        Event::Failed(EngineError::Panicked(text)) => {
                            assert!(panics && text.contains("asked to panic"));
                        }
                        Event::Failed(EngineError::Forward(error)) => {
                            assert!(!panics && error.to_string().contains("asked to fail"), "{error}");
                        }
                        other => panic!("{other:?}"),
                    }
                }
                assert_eq!(bench.answer(greedy(&[1, 2])).text(), "abc");
            }
        }
    }

    #[test]
    fn a_waiting_request_survives_a_failing_step() {
        let mut shape = Shape::default();
        shape.config.n_slots = 1;
        let mut bench = Bench::new(&scripted(2, "abc"), shape);
        let first = bench.submit(greedy(&[1, 2])).unwrap().1;
        let second = bench.submit(greedy(&[3, 4])).unwrap().1;
        bench.backend.fail_run(0);
        bench.drain();
        assert!(matches!(Answer::of(&first).last(), Event::Failed(_)));
        assert_eq!(Answer::of(&second).text(), "abc");
        bench.assert_idle();
    }

    #[test]
    fn a_refused_block_fails_a_prompt_and_ends_an_answer() {
        let mut bench = bench(&scripted(15, "abcdefg"));
        bench.backend.refuse_allocation(1);
        let answer = bench.answer(greedy(&[1; 15]));
        match answer.last() {
            Event::Failed(EngineError::Kv(error)) => {
                let text = error.to_string();
                assert!(text.starts_with("KV sequence 0: positions 0..8: KV block:"), "{text}");
            }
            other => panic!("{other:?}"),
        }
        bench.assert_idle();
        bench.backend.refuse_allocation(3);
        let stop = vec!["bc".to_owned()];
        let answer = bench.answer(Request { stop, ..greedy(&[1; 15]) });
        // Positions 0..16 have memory; the token at position 16 is chosen and has none.
        assert_eq!((answer.text().as_str(), answer.ids().len()), ("ab", 2));
        assert_eq!(answer.finished().tail, "b");
        assert_eq!(answer.finished().reason, FinishReason::Length);
        bench.assert_idle();
    }

    #[test]
    fn a_logit_that_is_no_number_fails_its_own_request() {
        let backend = NullBackend::new().with_logits(|history, logits| {
            logits.fill(0.0);
            if history[0] == 9 {
                logits[5] = f32::NAN;
            }
        });
        let mut bench = bench(&backend);
        let sick = bench.submit(Request { max_tokens: Some(3), ..greedy(&[9]) }).unwrap().1;
        let well = bench.submit(Request { max_tokens: Some(3), ..greedy(&[1]) }).unwrap().1;
        bench.drain();
        let sick = Answer::of(&sick);
        let Event::Failed(error) = sick.last() else { panic!("{sick:?}") };
        let text = error.to_string();
        assert!(
            text.starts_with("the logit of token 5 is NaN: ") && text.ends_with("(generated token 0)"),
            "{text}"
        );
        assert_eq!(Answer::of(&well).ids(), [0, 0, 0]);
        bench.assert_idle();
    }

    #[test]
    fn masking_everything_is_an_error() {
        let mut bench = bench(&NullBackend::new());
        let mut request = greedy(&[1]);
        request.sampling.logit_bias = (0..257).map(|id| (id, f32::NEG_INFINITY)).collect();
        let answer = bench.answer(request);
        let Event::Failed(error) = answer.last() else { panic!("{answer:?}") };
        assert_eq!(error.to_string(), "all tokens are masked (generated token 0)");
    }

    #[test]
    fn steps_without_progress_end_the_engine() {
        let mut bench = bench(&scripted(1, "abc"));
        let (_, first) = bench.submit(greedy(&[1])).unwrap();
        bench.worker.limits.tokens = 0;
        for _ in 1..STALLED_STEPS {
            assert!(bench.worker.step());
        }
        let (_, second) = bench.submit(greedy(&[1])).unwrap();
        assert!(!bench.worker.step());
        for events in [first, second] {
            let stalled = EngineError::Stalled { steps: STALLED_STEPS };
            assert_eq!(Answer::of(&events).last(), &Event::Failed(stalled));
        }
        assert!(bench.stats().stalled);
        bench.assert_idle();
    }

    #[test]
    fn an_error_of_the_backend_keeps_its_cause() {
        let error = crate::ForwardError::new(BackendError::BadBatch("x".to_owned()));
        assert_eq!(
            EngineError::from(error).to_string(),
            "the model's forward failed: the batch does not fit: x"
        );
    }
}

mod leaving {
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
        let sequence = bench.admission.accept(greedy(&[1; 3]), Deaf).unwrap();
        bench.worker.accept(sequence);
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
}

mod admission {
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
}

mod one_answer {
    use super::*;

    fn prompt_rows(answer: &Answer) -> Vec<PromptRow> {
        let rows = answer.events.iter().filter_map(|event| match event {
            Event::PromptLogprobs(rows) => Some(rows.clone()),
            _ => None,
        });
        rows.flatten().collect()
    }

    #[test]
    fn preemption_changes_no_text() {
        let requests: Vec<Request> = (0..3).map(|seed| sampled(&[seed as u32 + 1; 10], 30, seed)).collect();
        let mut roomy = bench(&eloquent());
        let alone: Vec<_> = requests.iter().map(|request| roomy.answer(request.clone()).ids()).collect();
        let mut tight = Bench::new(&eloquent(), small(5));
        let events: Vec<_> =
            requests.iter().map(|request| tight.submit(request.clone()).unwrap().1).collect();
        tight.drain();
        let crowded: Vec<_> = events.iter().map(|events| Answer::of(events).ids()).collect();
        assert_eq!(crowded, alone);
        assert!(tight.stats().preemptions > 0);
        assert_eq!(roomy.stats().preemptions, 0);
        tight.assert_idle();
    }

    #[test]
    fn the_oldest_is_never_preempted() {
        let mut bench = Bench::new(&eloquent(), small(5));
        let events: Vec<_> =
            (0..3).map(|seed| bench.submit(sampled(&[seed as u32; 10], 30, seed)).unwrap().1).collect();
        let mut steps = 0;
        while events[0].try_recv().is_none_or(|event| !event.is_terminal()) {
            assert!(bench.worker.step());
            steps += 1;
        }
        // Two steps of prompts at most, then one for each token; the test reads at most one event a step.
        assert!(steps < 40, "{steps}");
    }

    #[test]
    fn seeds_reproduce_alone_and_with_traffic() {
        let request = sampled(&[4, 5, 6], 20, 42);
        let mut bench = bench(&eloquent());
        let alone = bench.answer(request.clone());
        assert_eq!(alone.finished().seed, 42);
        assert_eq!(bench.answer(request.clone()).ids(), alone.ids());
        assert_ne!(bench.answer(Request { seed: Some(43), ..request.clone() }).ids(), alone.ids());
        assert_ne!(bench.answer(Request { choice: 1, ..request.clone() }).ids(), alone.ids());
        let _first = bench.submit(sampled(&[9; 30], 20, 1)).unwrap();
        bench.worker.step();
        let (_, events) = bench.submit(request).unwrap();
        let _third = bench.submit(sampled(&[8; 11], 20, 2)).unwrap();
        bench.drain();
        assert_eq!(Answer::of(&events).ids(), alone.ids());
    }

    #[test]
    fn without_a_seed_answers_differ_and_the_seed_is_told() {
        let mut bench = bench(&eloquent());
        let request = Request { seed: None, ..sampled(&[4, 5, 6], 20, 0) };
        let first = bench.answer(request.clone());
        assert_ne!(bench.answer(request.clone()).ids(), first.ids());
        let seed = Some(first.finished().seed);
        assert_eq!(bench.answer(Request { seed, ..request }).ids(), first.ids());
    }

    #[test]
    fn logprobs_do_not_depend_on_sampling_or_traffic() {
        let request = Request { logprobs: Some(3), max_tokens: Some(6), ignore_eos: true, ..greedy(&[4, 5]) };
        let mut bench = bench(&eloquent());
        let alone = bench.answer(request.clone());
        for token in alone.tokens() {
            let logprobs = token.logprobs.as_ref().unwrap();
            assert_eq!(logprobs.top.len(), 3);
            assert_eq!((logprobs.top[0].id, logprobs.top[0].logprob), (token.id, logprobs.logprob));
        }
        let mut hot = request.clone();
        hot.sampling = SamplingParams { temperature: 1e-6, top_k: 1, ..Default::default() };
        let hot = bench.answer(hot);
        let tokens = |answer: &Answer| answer.tokens().into_iter().cloned().collect::<Vec<_>>();
        assert_eq!(tokens(&hot), tokens(&alone));
        let _other = bench.submit(sampled(&[9; 30], 20, 1)).unwrap();
        let (_, events) = bench.submit(request).unwrap();
        bench.drain();
        assert_eq!(tokens(&Answer::of(&events)), tokens(&alone));
    }

    #[test]
    fn prompt_logprobs_cover_every_position_in_bounded_pieces() {
        let prompt: Vec<u32> = (0..21).map(|index| index * 7 % 100).collect();
        let prompt_logprobs = Some(PromptLogprobs { top: 4 });
        let mut expected = None;
        for (n_batch, head_rows, max_tokens) in [(8, 2, Some(0)), (4, 1, Some(3)), (32, 64, Some(1))] {
            let mut shape = Shape { head_rows, ..Shape::default() };
            shape.config.n_batch = n_batch;
            let mut bench = Bench::new(&eloquent(), shape);
            let answer = bench.answer(Request { max_tokens, prompt_logprobs, ..greedy(&prompt) });
            let rows = prompt_rows(&answer);
            assert_eq!(rows.len(), 21);
            for (position, row) in rows.iter().enumerate() {
                assert_eq!((row.position, row.token), (position as u32, prompt[position]));
                assert_eq!(row.next_logprob.is_some(), position < 20);
                assert_eq!(row.top.len(), 4);
                assert!(row.top.is_sorted_by(|a, b| a.logprob >= b.logprob));
            }
            assert_eq!(*expected.get_or_insert_with(|| rows.clone()), rows);
            let generated = u64::from(max_tokens.unwrap());
            assert_eq!(bench.stats().head_rows, 21 + generated.saturating_sub(1));
        }
    }

    #[test]
    fn prompt_logprobs_survive_a_preemption_once() {
        let mut shape = small(4);
        shape.config.n_batch = 4;
        let mut bench = Bench::new(&eloquent(), shape);
        let (_, first) = bench.submit(sampled(&[1; 20], 40, 1)).unwrap();
        (0..13).for_each(|_| assert!(bench.worker.step()));
        let prompt_logprobs = Some(PromptLogprobs { top: 1 });
        let second = Request { prompt_logprobs, ..sampled(&[2; 20], 10, 2) };
        let (_, events) = bench.submit(second.clone()).unwrap();
        bench.drain();
        assert_eq!(bench.stats().preemptions, 1);
        let crowded = Answer::of(&events);
        let alone = self::bench(&eloquent()).answer(second);
        assert_eq!(prompt_rows(&crowded), prompt_rows(&alone));
        assert_eq!(crowded.ids(), alone.ids());
        drop(first);
    }
}

/// What happens between two steps of the stress test.
#[derive(Debug, Clone)]
enum Action {
    Submit { prompt: usize, tokens: u32, seed: u64 },
    Cancel(usize),
    Leave(usize),
    Fail,
    Panic,
    Refuse,
    Step,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (1..40usize, 0..30u32, 0..50u64)
            .prop_map(|(prompt, tokens, seed)| Action::Submit { prompt, tokens, seed }),
        1 => (0..20usize).prop_map(Action::Cancel),
        1 => (0..20usize).prop_map(Action::Leave),
        1 => Just(Action::Fail),
        1 => Just(Action::Panic),
        1 => Just(Action::Refuse),
        12 => Just(Action::Step),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever happens, each request ends once, memory comes back, and what ends well is what it would be alone.
    #[test]
    fn every_request_ends_once(
        actions in prop::collection::vec(action(), 1..80),
        blocks in 3..12u32,
        shuffle in prop::option::of(any::<u64>()),
    ) {
        let mut shape = small(blocks);
        shape.config.placement = shuffle.map_or(Placement::Fresh, Placement::Shuffled);
        let mut bench = Bench::new(&eloquent(), shape);
        let mut requests = Vec::new();
        for action in actions {
            match action {
                Action::Submit { prompt, tokens, seed } => {
                    let request = sampled(&vec![seed as u32; prompt], tokens, seed);
                    if let Ok((id, events)) = bench.submit(request.clone()) {
                        requests.push((id, request, Some(events)));
                    }
                }
                Action::Cancel(index) => {
                    if let Some((id, ..)) = requests.get(index) {
                        bench.worker.cancel(*id);
                    }
                }
                Action::Leave(index) => {
                    if let Some((_, _, events)) = requests.get_mut(index) {
                        *events = None;
                    }
                }
                Action::Fail => bench.backend.fail_run(1),
                Action::Panic => bench.backend.panic_run(1),
                Action::Refuse => bench.backend.refuse_allocation(1),
                Action::Step => prop_assert!(bench.worker.step()),
            }
        }
        bench.drain();
        bench.worker.step();
        bench.assert_idle();
        prop_assert!(!bench.stats().stalled);
        let stats = bench.stats();
        prop_assert_eq!(stats.finished + stats.failed + stats.cancelled, requests.len() as u64);
        let config = EngineConfig { n_ctx: shape.config.n_ctx, ..Shape::default().config };
        let mut quiet = Bench::new(&eloquent(), Shape { config, ..small(64) });
        for (_, request, events) in requests {
            let Some(events) = events else { continue };
            let answer = Answer::of(&events);
            let alone = quiet.answer(request).ids();
            prop_assert!(alone.starts_with(&answer.ids()), "{:?} is no beginning of {:?}", answer.ids(), alone);
        }
    }
}
