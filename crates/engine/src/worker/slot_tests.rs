use super::session_tests::{ID, alone, turn};
use super::*;
use crate::kv::session::SessionError;
use crate::request::Request;
use crate::test_model::{Answer, Bench, Shape, eloquent};

/// Three slots, steps of 16 tokens.
fn bench(blocks: u32, window: Option<u32>) -> Bench {
    let config = EngineConfig { n_ctx: 256, n_batch: 16, ..Shape::default().config };
    Bench::new(&eloquent(), Shape { config, blocks, window, ..Shape::default() })
}

fn ask(prompt: &[u32], tokens: u32) -> Request {
    Request { session: None, ..turn(prompt, tokens) }
}

/// The prompt and the answer to it.
fn asked(bench: &mut Bench, prompt: &[u32], tokens: u32) -> Vec<u32> {
    let answer = bench.answer(ask(prompt, tokens));
    [prompt, &answer.ids()].concat()
}

fn lengths(bench: &Bench) -> Vec<u32> {
    bench.worker.slot_infos().iter().map(|info| info.tokens).collect()
}

#[test]
fn conversations_keep_their_slots_and_new_ones_take_empty_ones_first() {
    let mut bench = bench(64, None);
    let first = asked(&mut bench, &[1; 20], 5);
    assert_eq!(lengths(&bench), [24, 0, 0], "the last token is not fed");
    asked(&mut bench, &[2; 10], 3);
    let first = asked(&mut bench, &[&first[..], &[7]].concat(), 4);
    assert_eq!(lengths(&bench), [first.len() as u32 - 1, 12, 0]);
    asked(&mut bench, &[3; 8], 1);
    asked(&mut bench, &[4; 9], 1);
    assert_eq!(lengths(&bench), [first.len() as u32 - 1, 9, 8], "that of the longest unused is taken");
    bench.answer(Request { reuse: false, ..ask(&[5; 30], 2) });
    assert_eq!(lengths(&bench), [first.len() as u32 - 1, 9, 8], "it left no rows");
    let (_, events) = bench.submit(ask(&[6; 4], 9)).unwrap();
    (0..3).for_each(|_| assert!(bench.worker.step()));
    let running: Vec<_> = bench.worker.slot_infos().into_iter().filter(|info| info.is_running).collect();
    assert_eq!((running.len(), running[0].tokens, running[0].generated), (1, 7, 3));
    drop(events);
}

#[test]
fn saved_slots_go_on_elsewhere_and_only_what_is_new_is_fed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.slots");
    for window in [None, Some(20)] {
        let mut bench = bench(64, window);
        let system: Vec<u32> = (10..60).collect();
        let one = asked(&mut bench, &[&system[..], &[100, 101]].concat(), 9);
        let two = asked(&mut bench, &[&system[..], &[110, 111, 112]].concat(), 70);
        let salted = Request { salt: Some(7), ..ask(&[1; 40], 4) };
        bench.answer(salted.clone());
        bench.save_slots(&path).unwrap();
        let mut elsewhere = self::bench(80, window);
        elsewhere.load_slots(&path).unwrap();
        assert_eq!(lengths(&elsewhere), lengths(&bench));
        elsewhere.assert_idle();
        for tokens in [one, two] {
            let next = [&tokens[..], &[90, 91]].concat();
            let fed = elsewhere.stats().tokens_fed;
            let answer = elsewhere.answer(ask(&next, 6));
            assert_eq!(answer.ids(), bench.answer(ask(&next, 6)).ids());
            if window.is_none() {
                assert_eq!(answer.ids(), alone(&next, 6));
            }
            assert_eq!(elsewhere.stats().tokens_fed - fed, 1 + 2 + 5, "the pending token and what is new");
        }
        assert_eq!(elsewhere.answer(salted.clone()).finished().usage.cached, 39);
        assert_eq!(elsewhere.answer(Request { salt: Some(8), ..salted }).finished().usage.cached, 0);
        elsewhere.assert_idle();
    }
}

/// Rows travel between the steps of requests, which do not notice.
#[test]
fn slots_are_saved_while_requests_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.slots");
    let mut bench = bench(64, None);
    let known = asked(&mut bench, &[3; 100], 9);
    let prompts = [vec![1; 50], vec![2; 30]];
    let events: Vec<_> = prompts.iter().map(|prompt| bench.submit(ask(prompt, 40)).unwrap().1).collect();
    (0..9).for_each(|_| assert!(bench.worker.step()));
    let fed: Vec<u32> = bench.worker.slot_infos().iter().map(|info| info.tokens - 1).collect();
    let outgoing = bench.worker.send_slots(None).unwrap();
    let saved: Vec<u32> = outgoing.saved.iter().map(|saved| saved.length).collect();
    assert_eq!(saved, [known.len() as u32 - 1, fed[1], fed[2]]);
    let steps = bench.stats().steps;
    let writer = std::thread::spawn({
        let (path, terms) = (path.clone(), bench.worker.session_terms());
        move || {
            let crate::worker::transfers::Outgoing { saved, rows } = outgoing;
            crate::kv::session::write(&path, terms.identity, &terms.spec, saved, |put| {
                rows.iter().try_for_each(|bytes| put(&bytes))
            })
        }
    });
    bench.drain();
    assert!(bench.stats().steps > steps + 20);
    for (prompt, events) in prompts.iter().zip(&events) {
        assert_eq!(Answer::of(events).ids(), alone(prompt, 40));
    }
    while !writer.is_finished() {
        bench.worker.move_rows(Duration::ZERO);
    }
    writer.join().unwrap().unwrap();
    bench.worker.move_rows(Duration::ZERO);
    bench.assert_idle();
    let mut elsewhere = self::bench(64, None);
    elsewhere.load_slots(&path).unwrap();
    for prompt in prompts {
        let answer = elsewhere.answer(ask(&prompt, 40));
        assert_eq!(
            (answer.ids(), answer.finished().usage.cached),
            (alone(&prompt, 40), prompt.len() as u32 - 1)
        );
    }
}

#[test]
fn rows_on_their_way_give_way_to_requests() {
    let mut bench = bench(9, None);
    let asked = asked(&mut bench, &[1; 60], 30);
    let outgoing = bench.worker.send_slots(None).unwrap();
    assert_eq!(outgoing.saved[0].length as usize, asked.len() - 1);
    let other = bench.answer(ask(&[2; 100], 30));
    assert_eq!(other.ids(), alone(&[2; 100], 30));
    assert_eq!(other.finished().usage.completion, 30, "not cut short for rows that nobody waits for");
    let bytes: usize = outgoing.rows.iter().map(|chunk| chunk.len()).sum();
    assert!(bytes < 89 * 2 * 2 * 4 * 2, "given up: {bytes}");
    bench.assert_idle();
    // Two requests that have room for both preempt nobody for the sake of a file.
    let mut bench = self::bench(11, None);
    self::asked(&mut bench, &[3; 28], 3);
    let events = [4, 5].map(|id| bench.submit(ask(&[id; 50], 30)).unwrap().1);
    // Just before each needs one more block.
    while bench.worker.slot_infos().iter().filter(|info| info.tokens >= 64).count() < 2 {
        assert!(bench.worker.step());
    }
    let outgoing = bench.worker.send_slots(Some(0)).unwrap();
    bench.drain();
    for (id, events) in [4, 5].into_iter().zip(&events) {
        assert_eq!(Answer::of(events).ids(), alone(&[id; 50], 30));
    }
    assert_eq!((bench.stats().preemptions, outgoing.saved.len()), (0, 1));
    bench.assert_idle();
    // Nor does a reader that is gone hold them.
    drop(bench.worker.send_slots(None).unwrap());
    bench.worker.move_rows(Duration::ZERO);
    bench.assert_idle();
}

#[test]
fn an_erased_slot_leaves_what_others_have_too() {
    let mut bench = bench(64, None);
    let system: Vec<u32> = (10..74).collect();
    let one = asked(&mut bench, &[&system[..], &[100; 40]].concat(), 2);
    asked(&mut bench, &[&system[..], &[110; 40]].concat(), 2);
    let cached = bench.stats().kv.blocks_cached;
    assert_eq!(bench.worker.erase_slot(0).unwrap(), one.len() as u32 - 1);
    assert!(bench.stats().kv.blocks_cached < cached);
    assert_eq!(lengths(&bench)[0], 0);
    assert_eq!(bench.answer(ask(&one, 2)).finished().usage.cached, 64);
    let (_, events) = bench.submit(ask(&[6; 4], 9)).unwrap();
    bench.worker.step();
    let running = bench.worker.slot_infos().iter().position(|info| info.is_running).unwrap();
    assert!(matches!(bench.worker.erase_slot(running), Err(SessionError::Busy)));
    assert!(matches!(bench.worker.erase_slot(3), Err(SessionError::NoSession)));
    assert!(matches!(bench.worker.send_slots(Some(3)), Err(SessionError::NoSession)));
    bench.drain();
    drop(events);
    (0..3).for_each(|slot| drop(bench.worker.erase_slot(slot)));
    assert_eq!(bench.stats().kv.blocks_cached, 0);
    bench.assert_idle();
}

#[test]
fn files_of_conversations_and_of_slots_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.session");
    let mut bench = bench(64, None);
    bench.worker.open_session(ID, None);
    bench.answer(turn(&[1; 20], 3));
    bench.save(ID, &path, b"chat".to_vec()).unwrap();
    let refused = bench.load_slots(&path).unwrap_err().to_string();
    assert_eq!(refused, "it contradicts itself: it holds no slots of a server");
    assert_eq!(lengths(&bench), [0; 3]);
    bench.worker.close_session(ID);
    (1..3).for_each(|id| drop(asked(&mut bench, &[id; 20], 3)));
    bench.save_slots(&path).unwrap();
    let refused = bench.load(ID, &path, None).unwrap_err().to_string();
    assert_eq!(refused, "it contradicts itself: 2 conversations where one is expected");
}
