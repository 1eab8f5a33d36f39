use std::collections::{BTreeMap, BTreeSet};

use minfer_graph::backend::{KvArena, KvRows};
use minfer_graph::{BackendError, BlockTable, KvSpec};
use proptest::prelude::*;

use super::*;
use crate::test_model::{BLOCK, kv_spec};

/// Remembers which blocks are committed and refuses when told to.
struct TestArena {
    spec: KvSpec,
    committed: BTreeSet<(usize, u32)>,
    /// Commits that still succeed.
    patience: Option<u32>,
}

impl TestArena {
    fn new(spec: &KvSpec) -> TestArena {
        TestArena { spec: spec.clone(), committed: BTreeSet::new(), patience: None }
    }
}

impl KvArena for TestArena {
    fn spec(&self) -> &KvSpec {
        &self.spec
    }

    fn commit(&mut self, group: usize, block: u32) -> Result<(), BackendError> {
        if self.patience == Some(0) {
            return Err(BackendError::OutOfMemory { what: "KV block".to_owned(), bytes: 256 });
        }
        self.patience = self.patience.map(|patience| patience - 1);
        assert!(self.committed.insert((group, block)), "block {block} of group {group} is committed twice");
        Ok(())
    }

    fn release(&mut self, group: usize, block: u32) {
        assert!(self.committed.remove(&(group, block)), "block {block} of group {group} is not committed");
    }

    fn copy_rows(
        &mut self,
        group: usize,
        from: u32,
        to: u32,
        _: std::ops::Range<u32>,
    ) -> Result<(), BackendError> {
        assert!(self.committed.contains(&(group, from)) && self.committed.contains(&(group, to)));
        Ok(())
    }

    fn read_rows(&self, _: &KvRows, _: &mut [u8]) -> Result<(), BackendError> {
        unreachable!("rows are not read")
    }

    fn write_rows(&mut self, _: &KvRows, _: &[u8]) -> Result<(), BackendError> {
        unreachable!("rows are not written")
    }

    fn committed_bytes(&self) -> u64 {
        self.committed.len() as u64
    }

    fn reserved_bytes(&self) -> u64 {
        0
    }

    fn as_any_mut(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

/// A spec whose second group has blocks of twice as many positions.
fn uneven_spec(blocks: u32) -> KvSpec {
    let mut spec = kv_spec(blocks);
    spec.groups[1].block_tokens = 2 * BLOCK;
    spec.max_blocks[1] = blocks.div_ceil(2) + 1;
    spec
}

fn store(blocks: u32) -> (Store, TestArena) {
    let spec = kv_spec(blocks);
    (Store::new(&spec, StoreOptions::default()), TestArena::new(&spec))
}

#[test]
fn cells_follow_the_block_table() {
    let (mut store, mut arena) = store(4);
    let [a, b] = [store.create(), store.create()];
    store.prepare(&mut arena, a, &[7; 10]).unwrap();
    assert_eq!(store.cells(0, a).collect::<Vec<_>>(), Vec::from_iter(0..10));
    store.publish(a);
    store.prepare(&mut arena, b, &[7; 16]).unwrap();
    store.publish(b);
    store.prepare(&mut arena, a, &[7; 8]).unwrap();
    assert_eq!(store.cells(1, a).collect::<Vec<_>>(), [10, 11, 12, 13, 14, 15, 32, 33]);
    assert_eq!(store.table(1, a), BlockTable::Aligned(&[0, 2]));
    assert_eq!((store.length(a), store.prepared(a)), (10, 8));
    store.publish(a);
    assert_eq!((store.length(a), store.prepared(a)), (18, 0));
    assert_eq!(store.cells(0, a).count(), 0);
}

#[test]
fn errors_name_sequence_and_numbers() {
    let (mut store, mut arena) = store(2);
    let [_, b] = [store.create(), store.create()];
    store.prepare(&mut arena, b, &[7; 5]).unwrap();
    store.publish(b);
    let error = store.prepare(&mut arena, b, &[7; 28]).unwrap_err();
    let text = "KV sequence 1: 2 more blocks for positions 5..33, but 1 of 2 are free";
    assert_eq!(error.to_string(), text);
    let error = store.truncate(&mut arena, b, 6).unwrap_err();
    assert_eq!(error.to_string(), "KV sequence 1 has 5 tokens and cannot be cut to 6");
    arena.patience = Some(0);
    let error = store.prepare(&mut arena, b, &[7; 12]).unwrap_err();
    let text = "KV sequence 1: positions 5..17: KV block: 256 bytes of memory were refused";
    assert_eq!(error.to_string(), text);
}

#[test]
fn the_budget_can_be_lower_than_the_arena() {
    let spec = kv_spec(8);
    let mut arena = TestArena::new(&spec);
    let mut store = Store::new(&spec, StoreOptions { most_blocks: Some(3), ..StoreOptions::default() });
    assert_eq!(store.capacity(), 48);
    let id = store.create();
    assert!(store.prepare(&mut arena, id, &[7; 49]).is_err());
    store.prepare(&mut arena, id, &[7; 48]).unwrap();
    assert_eq!(
        Store::new(&spec, StoreOptions { most_blocks: Some(100), ..StoreOptions::default() }).capacity(),
        128
    );
}

#[test]
fn fitting_counts_what_is_free_and_reserved() {
    let (mut store, mut arena) = store(6);
    let a = store.create();
    store.prepare(&mut arena, a, &[7; 16]).unwrap();
    store.publish(a);
    let fitting = |reserved: &[(SequenceId, u32)], wanted: &[usize]| {
        store.fitting(reserved, wanted.iter().map(|&tokens| (&[7; 100][..tokens], None)))
    };
    assert_eq!(fitting(&[], &[80, 1]), 1);
    assert_eq!(fitting(&[], &[81]), 0);
    assert_eq!(fitting(&[(a, 17)], &[80]), 0);
    assert_eq!(fitting(&[(a, 17)], &[32, 32, 1]), 2);
    assert_eq!(fitting(&[(a, 16)], &[32, 32, 1, 1]), 3);
}

#[test]
fn a_fork_shares_until_it_writes_and_a_removal_keeps_where_rows_were_rotated() {
    let (mut store, mut arena) = store(8);
    let a = store.create();
    store.prepare(&mut arena, a, &[7; 20]).unwrap();
    store.publish(a);
    let b = store.fork(a);
    assert_eq!((store.stats().blocks_live, store.stats().blocks_shared), (4, 4));
    store.prepare(&mut arena, b, &[8; 2]).unwrap();
    store.publish(b);
    assert_eq!(store.table(0, a), BlockTable::Aligned(&[0, 1]));
    assert_eq!(store.table(0, b), BlockTable::Aligned(&[0, 2]));
    store.remove(&mut arena, b, 3..6).unwrap();
    let run = |start, rows, block, offset, rope_offset| KvRun { start, rows, block, offset, rope_offset };
    let runs = [run(0, 3, 0, 0, 0), run(3, 10, 0, 6, 3), run(13, 6, 2, 0, 3)];
    assert_eq!(store.table(0, b), BlockTable::Shifted(&runs));
    assert!(store.is_shifted(b) && !store.is_shifted(a));
    store.drop_sequence(&mut arena, a);
    assert_eq!(store.compact(&mut arena, 9).unwrap(), 2);
    assert_eq!(store.rows(1, b)[2].block, 1);
    let shape = store.shape(b);
    let c = store.restore(&mut arena, shape, None).unwrap();
    assert_eq!(store.prepared(c), 19);
    store.publish(c);
    assert_eq!(store.tokens(c), store.tokens(b));
    store.drop_sequence(&mut arena, b);
    store.drop_sequence(&mut arena, c);
    assert!(arena.committed.is_empty());
}

#[test]
#[should_panic(expected = "KV sequence 0 has cells that are not published")]
fn cells_are_not_prepared_twice() {
    let (mut store, mut arena) = store(2);
    let id = store.create();
    store.prepare(&mut arena, id, &[7; 1]).unwrap();
    let _ = store.prepare(&mut arena, id, &[7; 1]);
}

#[derive(Debug, Clone)]
enum Operation {
    Create,
    Prepare { sequence: usize, tokens: u32, patience: Option<u32> },
    Publish(usize),
    Undo(usize),
    Truncate { sequence: usize, length: u32 },
    Drop(usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    let sequence = || 0..5usize;
    prop_oneof![
        2 => Just(Operation::Create),
        6 => (sequence(), 0..70u32, prop::option::weighted(0.3, 0..4u32))
            .prop_map(|(sequence, tokens, patience)| Operation::Prepare { sequence, tokens, patience }),
        4 => sequence().prop_map(Operation::Publish),
        2 => sequence().prop_map(Operation::Undo),
        2 => (sequence(), 0..80u32)
            .prop_map(|(sequence, length)| Operation::Truncate { sequence, length }),
        1 => sequence().prop_map(Operation::Drop),
    ]
}

/// Tokens in the cache and prepared, for each sequence.
type Model = BTreeMap<SequenceId, (u32, u32)>;

/// The invariants of blocks, tables and the arena, recounted from scratch.
fn check(store: &Store, arena: &TestArena, model: &Model) {
    let mut owned = BTreeSet::new();
    for (&id, &(length, prepared)) in model {
        assert_eq!((store.length(id), store.prepared(id)), (length, prepared));
        for (group, spec) in arena.spec.groups.iter().enumerate() {
            let BlockTable::Aligned(table) = store.table(group, id) else { panic!("nothing was removed") };
            assert_eq!(table.len() as u32, (length + prepared).div_ceil(spec.block_tokens));
            for (index, &block) in table.iter().enumerate() {
                assert!(block < arena.spec.max_blocks[group]);
                assert!(owned.insert((group, block)), "block {block} at {index} has two owners");
            }
            let cells = (length..length + prepared).map(|position| {
                table[(position / spec.block_tokens) as usize] * spec.block_tokens
                    + position % spec.block_tokens
            });
            assert!(store.cells(group, id).eq(cells));
        }
    }
    assert_eq!(owned, arena.committed);
    let stats = store.stats();
    assert_eq!(stats.blocks_live, owned.len() as u64);
    assert_eq!(
        stats.blocks_total,
        arena.spec.max_blocks.iter().map(|&blocks| u64::from(blocks)).sum::<u64>()
    );
    assert_eq!(stats.sequences, model.len() as u64);
    assert_eq!(stats.tokens, model.values().map(|&(length, _)| u64::from(length)).sum::<u64>());
}

/// Blocks that are free in each group.
fn free(arena: &TestArena) -> Vec<u32> {
    let used = |group| arena.committed.iter().filter(|(owner, _)| *owner == group).count() as u32;
    (0..arena.spec.groups.len()).map(|group| arena.spec.max_blocks[group] - used(group)).collect()
}

/// Carries out one operation on both; whether it must succeed is decided from the model alone.
fn apply(store: &mut Store, arena: &mut TestArena, model: &mut Model, operation: Operation) {
    let pick = |model: &Model, index: usize| model.keys().nth(index).copied();
    match operation {
        Operation::Create => {
            assert_eq!(model.insert(store.create(), (0, 0)), None);
        }
        Operation::Prepare { sequence, tokens, patience } => {
            let Some(id) = pick(model, sequence).filter(|id| model[id].1 == 0) else { return };
            let length = model[&id].0;
            let lacking: Vec<u32> = arena
                .spec
                .groups
                .iter()
                .map(|group| {
                    (length + tokens).div_ceil(group.block_tokens) - length.div_ceil(group.block_tokens)
                })
                .collect();
            let room = lacking.iter().zip(free(arena)).all(|(&lacking, free)| lacking <= free);
            arena.patience = patience;
            let granted = patience.is_none_or(|patience| patience >= lacking.iter().sum());
            let result = store.prepare(arena, id, &vec![7; tokens as usize]);
            arena.patience = None;
            assert_eq!(result.is_ok(), room && granted, "{result:?}");
            match result {
                Ok(()) => model.get_mut(&id).unwrap().1 = tokens,
                Err(StoreError::NoBlocks { .. }) => assert!(!room),
                Err(error) => assert!(room && matches!(error, StoreError::Refused { .. })),
            }
        }
        Operation::Publish(index) => {
            let Some(id) = pick(model, index) else { return };
            store.publish(id);
            let entry = model.get_mut(&id).unwrap();
            *entry = (entry.0 + entry.1, 0);
        }
        Operation::Undo(index) => {
            let Some(id) = pick(model, index) else { return };
            store.undo(arena, id);
            model.get_mut(&id).unwrap().1 = 0;
        }
        Operation::Truncate { sequence, length } => {
            let Some(id) = pick(model, sequence).filter(|id| model[id].1 == 0) else { return };
            let result = store.truncate(arena, id, length);
            assert_eq!(result.is_ok(), length <= model[&id].0);
            if result.is_ok() {
                model.insert(id, (length, 0));
            }
        }
        Operation::Drop(index) => {
            let Some(id) = pick(model, index) else { return };
            store.drop_sequence(arena, id);
            model.remove(&id);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn agrees_with_a_naive_model(
        operations in prop::collection::vec(operation(), 1..60),
        blocks in 1..12u32,
        shuffle in prop::option::of(any::<u64>()),
    ) {
        let spec = uneven_spec(blocks);
        let placement = shuffle.map_or(Placement::Fresh, Placement::Shuffled);
        let (mut store, mut arena) = (Store::new(&spec, StoreOptions { placement, ..StoreOptions::default() }), TestArena::new(&spec));
        let mut model = Model::new();
        for operation in operations {
            apply(&mut store, &mut arena, &mut model, operation);
            check(&store, &arena, &model);
        }
    }
}
