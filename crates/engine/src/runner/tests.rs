use minfer_graph::NullBackend;

use super::*;
use crate::test_model::{eloquent, executor};

const EXTENTS: Extents = Extents { tokens: 64, rows: 3, sequences: 4 };

fn runner(backend: &NullBackend, block_order: BlockOrder) -> Runner {
    Runner::new(executor(backend, 100, EXTENTS), RunnerOptions { block_order, ..RunnerOptions::default() })
}

fn prompt() -> Vec<u32> {
    (0..100).map(|index| index * 31 % 250).collect()
}

/// Logits of every position, fed in pieces of `chunk` tokens beside `mates` other sequences.
fn all_rows(runner: &mut Runner, chunk: usize, mates: usize) -> Vec<Vec<f32>> {
    let prompt = prompt();
    let others: Vec<SequenceId> = (0..mates).map(|_| runner.open()).collect();
    let sequence = runner.open();
    let mut rows = Vec::new();
    for (index, piece) in prompt.chunks(chunk).enumerate() {
        let noise = [index as u32; 3];
        let mut step: Vec<(SequenceId, &[u32])> = others.iter().map(|&id| (id, &noise[..])).collect();
        let place = index % (mates + 1);
        step.insert(place, (sequence, piece));
        runner
            .feed(&step, Want::All, |row| {
                if row.sequence == place {
                    assert_eq!(row.position as usize, rows.len());
                    rows.push(row.logits.to_vec());
                }
            })
            .unwrap();
    }
    others.into_iter().chain([sequence]).for_each(|id| runner.close(id));
    rows
}

#[test]
fn logits_depend_on_the_tokens_alone() {
    let backend = eloquent();
    let expected = all_rows(&mut runner(&backend, BlockOrder::LowestFirst), 64, 0);
    assert_eq!(expected.len(), 100);
    for block_order in [BlockOrder::LowestFirst, BlockOrder::Shuffled(3)] {
        for chunk in [1, 7, 50] {
            for mates in [0, 3] {
                let mut runner = runner(&backend, block_order);
                assert_eq!(all_rows(&mut runner, chunk, mates), expected);
                let stats = runner.stats();
                let steps = 100u64.div_ceil(chunk as u64);
                assert_eq!(stats.steps, steps);
                assert_eq!(stats.head_rows, 100 + 3 * mates as u64 * steps);
                assert_eq!(stats.tokens_fed, stats.head_rows);
                assert_eq!(runner.store().stats().blocks_live, 0);
            }
        }
    }
}

#[test]
fn prefill_and_decode_give_the_last_row_only() {
    let backend = eloquent();
    let expected = all_rows(&mut runner(&backend, BlockOrder::LowestFirst), 64, 0);
    let mut runner = runner(&backend, BlockOrder::LowestFirst);
    let (prompt, id) = (prompt(), runner.open());
    assert_eq!(*runner.prefill(id, &prompt[..98]).unwrap(), expected[97]);
    assert_eq!(*runner.decode(id, prompt[98]).unwrap(), expected[98]);
    assert_eq!(*runner.decode(id, prompt[99]).unwrap(), expected[99]);
    let stats = runner.stats();
    assert_eq!((stats.steps, stats.head_rows, stats.tokens_fed), (4, 3, 100));
    assert_eq!(stats.graph_builds, 2);
    runner.truncate(id, 50).unwrap();
    assert_eq!(*runner.prefill(id, &prompt[50..60]).unwrap(), expected[59]);
    assert_eq!(runner.length(id), 60);
}

#[test]
fn a_step_that_cannot_be_leaves_everything_as_it_was() {
    let backend = eloquent();
    let mut runner = runner(&backend, BlockOrder::LowestFirst);
    let [a, b] = [runner.open(), runner.open()];
    runner.prefill(a, &[1, 2, 3]).unwrap();
    let before = runner.store().stats();
    let tokens = [4; 40];
    let mut failing = |run: &dyn Fn(&NullBackend)| {
        run(&backend);
        let error = runner.feed(&[(a, &tokens[..20]), (b, &tokens[..20])], Want::All, |_| {}).unwrap_err();
        assert_eq!((runner.store().stats(), runner.length(a), runner.length(b)), (before, 3, 0));
        error
    };
    assert!(matches!(failing(&|backend| backend.refuse_allocation(3)), RunError::Kv(_)));
    assert!(matches!(failing(&|backend| backend.fail_run(0)), RunError::ModelExecutor(_)));
    assert!(matches!(failing(&|backend| backend.fail_run(5)), RunError::ModelExecutor(_)));
    assert_eq!(backend.stats().committed_blocks, before.blocks_live);
    runner.feed(&[(a, &tokens[..20]), (b, &tokens[..20])], Want::Nothing, |_| {}).unwrap();
    assert_eq!((runner.length(a), runner.length(b)), (23, 20));
}

#[test]
fn wrong_steps_are_refused() {
    let mut runner = runner(&NullBackend::new(), BlockOrder::LowestFirst);
    let ids: Vec<SequenceId> = (0..5).map(|_| runner.open()).collect();
    let mut error =
        |step: &[(SequenceId, &[u32])]| runner.feed(step, Want::All, |_| {}).unwrap_err().to_string();
    let text = "tokens: 65 in one step, but the model was compiled for 64";
    assert_eq!(error(&[(ids[0], &[0; 65])]), text);
    let five: Vec<(SequenceId, &[u32])> = ids.iter().map(|&id| (id, &[0u32][..])).collect();
    assert_eq!(error(&five), "sequences: 5 in one step, but the model was compiled for 4");
    assert_eq!(error(&[(ids[0], &[])]), "sequence 0 of the step has no tokens");
    assert_eq!(error(&[(ids[0], &[1]), (ids[0], &[1])]), "sequence 1 of the step is given twice");
    assert_eq!(error(&[(ids[0], &[257])]), "token 257 is outside the vocabulary of 257 tokens");
    assert!(runner.prefill(ids[0], &[]).is_err());
}
