//! An answer does not depend on what else runs.

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
    let events: Vec<_> = requests.iter().map(|request| tight.submit(request.clone()).unwrap().1).collect();
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
    // Two steps of prompts at most, then one for each token; the test reads at most one event a
    // step.
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
