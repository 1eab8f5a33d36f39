use super::session_tests::alone;
use crate::event::Event;
use crate::request::Request;
use crate::session::SessionId;
use crate::test_model::{Answer, Bench, Shape, eloquent, greedy};
use crate::{EngineConfig, EngineError, SamplingParams};

const ID: SessionId = SessionId(1);

fn bench() -> Bench {
    let config = EngineConfig { n_slots: 8, n_batch: 16, queue: 20, ..Shape::default().config };
    Bench::new(&eloquent(), Shape { config, ..Shape::default() })
}

fn turn(prompt: &[u32], salt: Option<u64>) -> Request {
    Request { session: Some(ID), salt, max_tokens: Some(4), ignore_eos: true, ..greedy(prompt) }
}

#[test]
fn several_answers_to_one_prompt_share_its_blocks() {
    let sampling =
        SamplingParams { temperature: 3.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..SamplingParams::default() };
    let prompt: Vec<u32> = (10..80).collect();
    let request = |choice| Request {
        choice,
        seed: Some(5),
        sampling: sampling.clone(),
        max_tokens: Some(6),
        ignore_eos: true,
        ..Request::new(prompt.clone())
    };
    let mut bench = bench();
    let events = [0, 1, 2, 3].map(|choice| bench.submit(request(choice)).unwrap().1);
    let mut most_shared = 0;
    while bench.worker.has_work() && bench.worker.step() {
        most_shared = most_shared.max(bench.stats().kv.blocks_shared);
    }
    let answers = events.map(|events| Answer::of(&events));
    for (choice, answer) in (0..).zip(&answers) {
        let alone = self::bench().answer(request(choice));
        assert_eq!(answer.ids(), alone.ids());
        assert_eq!(answer.finished().usage.cached, if choice == 0 { 0 } else { 69 });
        assert!(answers[..choice as usize].iter().all(|other| other.ids() != answer.ids()));
    }
    // The prompt once; the others feed its last token, which chooses their first; then five of six
    // tokens each.
    assert_eq!(bench.stats().tokens_fed, 70 + 3 + 4 * 5);
    assert!(most_shared >= 2 * 4, "four whole blocks of two groups: {most_shared}");
    bench.assert_idle();
}

#[test]
fn a_conversation_takes_requests_of_its_own_salt_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    let mut bench = bench();
    let refused = |answer: Answer| assert_eq!(answer.last(), &Event::Failed(EngineError::OtherSalt));
    let mut tokens: Vec<u32> = (10..60).collect();
    for salt in [None, Some(7)] {
        bench.worker.open_session(ID, salt);
        let answer = bench.answer(turn(&tokens, salt));
        assert_eq!(answer.finished().usage.cached, 0, "rows of another salt");
        tokens.extend(answer.ids());
        let known = bench.worker.session_info(ID);
        for other in [None, Some(7), Some(8)].into_iter().filter(|&other| other != salt) {
            refused(bench.answer(turn(&tokens, other)));
        }
        assert_eq!(bench.worker.session_info(ID), known);
        assert_eq!(bench.answer(turn(&tokens, salt)).finished().usage.cached, tokens.len() as u32 - 1);
        // What it leaves is known to its salt alone.
        bench.save(ID, &path, Vec::new()).unwrap();
        bench.worker.close_session(ID);
        let later = |salt| Request { session: None, ..turn(&tokens, salt) };
        assert_eq!(bench.answer(later(salt)).finished().usage.cached, tokens.len() as u32 - 1);
        let other = Some(10 + salt.unwrap_or(0));
        assert_eq!(bench.answer(later(other)).finished().usage.cached, 0);
        tokens.truncate(50);
    }
    // A file has no salt: whoever opens it says for whom.
    bench.load(ID, &path, Some(9)).unwrap();
    let tokens = bench.worker.session_info(ID).unwrap().tokens;
    refused(bench.answer(turn(&tokens, Some(7))));
    assert_eq!(bench.answer(turn(&tokens, Some(9))).finished().usage.cached, tokens.len() as u32 - 1);
}

#[test]
fn requests_that_begin_alike_compute_their_beginning_once() {
    let mut bench = bench();
    let system: Vec<u32> = (10..80).collect();
    let prompts: Vec<Vec<u32>> =
        (0..8).map(|user| system.iter().copied().chain([200 + user, 7, 8]).collect()).collect();
    let request = |prompt: &[u32]| Request { session: None, ..turn(prompt, None) };
    let events: Vec<_> = prompts.iter().map(|prompt| bench.submit(request(prompt)).unwrap().1).collect();
    let mut most_shared = 0;
    while bench.worker.has_work() && bench.worker.step() {
        most_shared = most_shared.max(bench.stats().kv.blocks_shared);
    }
    for (prompt, events) in prompts.iter().zip(&events) {
        assert_eq!(Answer::of(events).ids(), alone(prompt, 4));
    }
    // The whole beginning once, then for each request its own three tokens and three of the four
    // that it generates.
    assert_eq!(bench.stats().tokens_fed, 70 + 8 * (3 + 3));
    assert_eq!(bench.stats().reused_tokens, 7 * 70);
    assert!(most_shared >= 2 * 4, "four whole blocks of two groups: {most_shared}");
    // Later requests find it too, those of another salt do not.
    let again = bench.answer(request(&prompts[3]));
    assert_eq!(again.finished().usage.cached, 72);
    let salted = bench.answer(Request { salt: Some(1), ..request(&prompts[3]) });
    assert_eq!((salted.finished().usage.cached, salted.ids()), (0, again.ids()));
    let alone = bench.answer(Request { reuse: false, ..request(&prompts[3]) });
    assert_eq!((alone.finished().usage.cached, alone.ids()), (0, again.ids()));
    // Nor do rows of a salt get out of it where it did not look for any itself.
    let secret: Vec<u32> = (100..160).collect();
    bench.answer(Request { reuse: false, salt: Some(2), ..request(&secret) });
    assert_eq!(bench.answer(request(&secret)).finished().usage.cached, 0);
    bench.assert_idle();
}

/// Without a prefix cache there are no rows to wait for.
#[test]
fn equal_prompts_run_side_by_side_where_no_prefix_is_kept() {
    for (prefix_cache, side_by_side) in [(true, 1), (false, 3)] {
        let config = EngineConfig { n_slots: 8, n_batch: 16, prefix_cache, ..Shape::default().config };
        let mut bench = Bench::new(&eloquent(), Shape { config, ..Shape::default() });
        let prompt: Vec<u32> = (10..80).collect();
        let request = || Request { session: None, ..turn(&prompt, None) };
        let events = [(); 3].map(|()| bench.submit(request()).unwrap().1);
        bench.worker.step();
        assert_eq!(bench.stats().running, side_by_side, "prefix cache: {prefix_cache}");
        bench.drain();
        let alone = alone(&prompt, 4);
        events.iter().for_each(|events| assert_eq!(Answer::of(events).ids(), alone));
        bench.assert_idle();
    }
}
