//! Backends that fail, panic or refuse.

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
                    Event::Failed(EngineError::ModelExecutor(error)) => {
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
    let error = crate::ModelExecutorError::new(BackendError::BadBatch("x".to_owned()));
    assert_eq!(EngineError::from(error).to_string(), "running the model failed: the batch does not fit: x");
}
