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
fn several_requests_are_accepted_together_or_not_at_all() {
    let mut bench = bench(&scripted(1, "abc"));
    let (sinks, events): (Vec<_>, Vec<_>) = (0..4).map(|_| crate::Events::channel()).unzip();
    let submissions = |sinks: Vec<crate::reply::ChannelSink>| {
        let with = |sink| crate::Submission::new(greedy(&[1]), sink);
        sinks.into_iter().map(with).collect::<Vec<_>>()
    };
    let running: Vec<_> = (0..5).map(|_| bench.submit(greedy(&[1])).unwrap().1).collect();
    let refused = bench.admission.accept(submissions(sinks)).err();
    assert_eq!(refused, Some(SubmitError::QueueFull { n_slots: 3, queue: 5 }));
    assert!(events.iter().all(|events| events.try_recv().is_none()));
    let (sinks, events): (Vec<_>, Vec<_>) = (0..3).map(|_| crate::Events::channel()).unzip();
    let mut wrong = submissions(sinks);
    wrong.push(crate::Submission::new(greedy(&[]), crate::Events::channel().0));
    assert!(bench.admission.accept(wrong).is_err());
    assert!(events.iter().all(|events| events.try_recv().is_none()));
    let (sinks, events): (Vec<_>, Vec<_>) = (0..3).map(|_| crate::Events::channel()).unzip();
    let sequences = bench.admission.accept(submissions(sinks)).unwrap();
    sequences.into_iter().for_each(|sequence| bench.worker.accept(sequence));
    bench.drain();
    assert!(events.iter().chain(&running).all(|events| Answer::of(events).text() == "abc"));
    bench.assert_idle();
}

#[test]
fn a_higher_priority_waits_before_a_lower_one() {
    let mut shape = Shape::default();
    (shape.config.n_slots, shape.config.queue) = (1, 9);
    let mut bench = Bench::new(&eloquent(), shape);
    let order = std::sync::Arc::<std::sync::Mutex<Vec<i32>>>::default();
    struct Noted(i32, std::sync::Arc<std::sync::Mutex<Vec<i32>>>);
    impl EventSink for Noted {
        fn send(&mut self, event: Event) -> bool {
            if event.is_terminal() {
                self.1.lock().unwrap().push(self.0);
            }
            true
        }

        fn is_closed(&self) -> bool {
            false
        }
    }
    for (mark, priority) in [(0, 0), (1, 0), (2, 0), (3, -1), (4, 0), (5, 2), (6, 2), (7, 1)] {
        let sink = Noted(mark, std::sync::Arc::clone(&order));
        let submission = crate::Submission::new(sampled(&[mark as u32], 9, 1), sink).priority(priority);
        bench.submit_with(submission).unwrap();
    }
    bench.drain();
    assert_eq!(*order.lock().unwrap(), [5, 6, 7, 0, 1, 2, 4, 3]);
    bench.assert_idle();
}

#[test]
fn a_request_ends_at_its_deadline_wherever_it_is() {
    let mut bench = bench(&eloquent());
    let other = bench.submit(sampled(&[1], 60, 1)).unwrap().1;
    let far = std::time::Instant::now() + std::time::Duration::from_secs(1000);
    let submit = |bench: &mut Bench, deadline| {
        let (sink, events) = crate::Events::channel();
        let submission = crate::Submission::new(sampled(&[2; 40], 60, 1), sink).deadline(deadline);
        bench.submit_with(submission).unwrap();
        events
    };
    let kept = submit(&mut bench, far);
    for steps in [0, 1, 3, 12] {
        let late = submit(&mut bench, std::time::Instant::now() + std::time::Duration::from_millis(20));
        (0..steps).for_each(|_| assert!(bench.worker.step()));
        std::thread::sleep(std::time::Duration::from_millis(25));
        bench.worker.step();
        assert_eq!(*Answer::of(&late).last(), Event::Failed(EngineError::Deadline), "after {steps} steps");
    }
    bench.drain();
    assert!(matches!(Answer::of(&kept).last(), Event::Finished(_)));
    assert!(matches!(Answer::of(&other).last(), Event::Finished(_)));
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
