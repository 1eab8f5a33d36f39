//! Invariants of blocks, tables, the prefix index and the arena, recounted from scratch; and the
//! longest reusable prefix by brute force.

use std::collections::{BTreeMap, BTreeSet};

use minfer_graph::{BlockTable, EVICTED, KvRun};

use super::arena::{Cell, TestArena};
use super::model::{Model, Rows, State, in_group};
use crate::kv::prefix::IndexedBlock;
use crate::kv::{SequenceId, Store};

/// The first position, of `length` ones, that must not be released: the one at the far end of the
/// next token's window, which counts that token too. The last one stays whatever the window.
pub(super) fn first_kept(window: Option<u32>, length: u32) -> u32 {
    match window {
        None => 0,
        Some(_) if length == 0 => 0,
        Some(window) => {
            let far_end = i64::from(length) - (i64::from(window) - 1);
            far_end.clamp(0, i64::from(length) - 1) as u32
        }
    }
}

/// Everything that must hold after every operation.
pub(super) fn check(store: &Store, arena: &TestArena, model: &Model) {
    for (&id, rows) in model {
        check_sequence(store, arena, id, rows);
    }
    check_blocks(store, arena, model);
    check_names(store, arena);
}

/// Every row of a sequence is what a private copy would hold, and none that a later token sees is
/// missing.
fn check_sequence(store: &Store, arena: &TestArena, id: SequenceId, rows: &Rows) {
    let length = rows.length();
    assert_eq!((store.tokens(id), store.length(id)), (&rows.tokens[..], length));
    assert_eq!((store.prepared(id), store.is_shifted(id)), (rows.prepared.len() as u32, rows.shifted));
    for (group, spec) in store.groups.iter().enumerate() {
        let mut next = 0;
        for run in store.rows(group, id) {
            assert!(run.start == next && run.rows > 0, "runs cover each position once: {run:?}");
            next = run.end();
            if run.block == EVICTED {
                let seen = first_kept(spec.window, length);
                assert!(next <= seen, "{run:?} is missed by a token that sees from {seen} on");
                continue;
            }
            let cells = &arena.blocks[&(group, run.block)][run.offset as usize..][..run.rows as usize];
            for (position, &cell) in (run.start..next.min(length)).zip(cells) {
                let expected = in_group(rows.rows[position as usize], group);
                assert_eq!(cell, Some(expected), "position {position} of group {group}");
                assert_eq!(position + run.rope_offset, expected.rotated_at);
            }
        }
        assert_eq!(next, length + store.prepared(id));
        assert_eq!(matches!(store.table(group, id), BlockTable::Shifted(_)), rows.shifted);
        check_places(store, group, id);
    }
}

/// Cells are those of the table that a step reads, and so are the rows that are read out.
fn check_places(store: &Store, group: usize, id: SequenceId) {
    let block_tokens = store.groups[group].block_tokens;
    let table = store.table(group, id);
    let length = store.length(id);
    for (position, cell) in (length..).zip(store.cells(group, id)) {
        let place = table.place(position, block_tokens).expect("prepared cells are there");
        assert_eq!((place.cell(block_tokens), place.rope_offset), (cell, 0));
    }
    for KvRun { start, block, offset, rope_offset, .. } in store.rows(group, id) {
        if let Some(place) = table.place(start, block_tokens).filter(|_| block != EVICTED) {
            assert_eq!((place.block, place.offset, place.rope_offset), (block, offset, rope_offset));
        }
    }
}

/// The blocks that a table names.
fn named_by(table: BlockTable<'_>) -> BTreeSet<u32> {
    let blocks: Vec<u32> = match table {
        BlockTable::Aligned(blocks) => blocks.to_vec(),
        BlockTable::Shifted(runs) => runs.iter().map(|run| run.block).collect(),
    };
    blocks.into_iter().filter(|&block| block != EVICTED).collect()
}

/// Owners recounted; each block is free, cached or live; memory is taken for the latter two; stats
/// are the recount.
fn check_blocks(store: &Store, arena: &TestArena, model: &Model) {
    let stats = store.stats();
    let [mut live, mut cached, mut shared, mut attributed, mut total] = [0u64; 5];
    let mut committed = BTreeSet::new();
    for (group, blocks) in store.groups.iter().enumerate() {
        let pool = &blocks.pool;
        let mut owners: BTreeMap<u32, u32> = BTreeMap::new();
        for &id in model.keys() {
            for block in named_by(store.table(group, id)) {
                *owners.entry(block).or_default() += 1;
            }
        }
        let free = pool.free_blocks();
        for block in 0..pool.total() {
            let count = owners.get(&block).copied().unwrap_or(0);
            assert_eq!(pool.owners(block), count, "owners of block {block} of group {group}");
            let kept = count == 0 && pool.entry(block).is_some();
            assert_eq!(free[block as usize], count == 0 && !kept, "block {block} of group {group}");
            if count > 0 || kept {
                committed.insert((group, block));
            }
            cached += u64::from(kept);
        }
        live += owners.len() as u64;
        shared += owners.values().filter(|&&count| count > 1).count() as u64;
        attributed += owners.values().map(|&count| u64::from(count)).sum::<u64>();
        total += u64::from(pool.total());
    }
    assert!(committed.iter().eq(arena.blocks.keys()), "{committed:?}");
    assert_eq!((stats.blocks_total, stats.blocks_live, stats.blocks_cached), (total, live, cached));
    assert_eq!((stats.blocks_shared, stats.blocks_attributed), (shared, attributed));
    assert_eq!(stats.sequences, model.len() as u64);
    assert_eq!(stats.tokens, model.values().map(|rows| rows.rows.len() as u64).sum::<u64>());
    let sizes = |blocks: u64| blocks * store.groups[0].block_bytes;
    if store.groups.len() == 1 {
        assert_eq!((stats.live_bytes, stats.cached_bytes), (sizes(live), sizes(cached)));
        assert_eq!(stats.shared_bytes, sizes(shared));
    }
    for &id in model.keys() {
        let of = store.sequence_blocks(id);
        let blocks = (0..store.groups()).map(|group| named_by(store.table(group, id)).len() as u64);
        assert_eq!(of.blocks, blocks.sum::<u64>());
    }
}

/// Every named block holds the rows of its name, and every name of a block is the index's.
fn check_names(store: &Store, arena: &TestArena) {
    let mut named = BTreeSet::new();
    for (block_tokens, tree) in store.index.trees() {
        for IndexedBlock { root, tokens, group, block, rows: count } in tree.named() {
            let salt = (root[2] == 1).then(|| u64::from(root[3]) | u64::from(root[4]) << 32);
            let mut rows = Rows::new(salt);
            rows.append(&tokens);
            let start = rows.length() - count as u32;
            assert!(start.is_multiple_of(block_tokens));
            let cells = &arena.blocks[&(group, block)][..count];
            let expected = rows.rows[start as usize..].iter().map(|&row| Some(in_group(row, group)));
            assert!(cells.iter().copied().eq(expected), "block {block} of group {group} lies");
            let name = store.groups[group].pool.entry(block).expect("the block has a name");
            assert_eq!(name.rows, count as u32);
            assert!(named.insert((group, block)), "block {block} of group {group} has two names");
        }
    }
    let names = store.groups.iter().enumerate().flat_map(|(group, blocks)| {
        let pool = &blocks.pool;
        (0..pool.total()).filter(|&block| pool.entry(block).is_some()).map(move |block| (group, block))
    });
    assert!(named.into_iter().eq(names), "names without a block");
}

/// How many of `tokens` a new sequence must be able to take, looked up in every block that may be
/// taken from.
pub(super) fn longest_reuse(
    store: &Store,
    arena: &TestArena,
    model: &Model,
    tokens: &[u32],
    salt: Option<u64>,
) -> u32 {
    let mut wanted = Rows::new(salt);
    wanted.append(tokens);
    let known: Vec<Vec<bool>> =
        (0..store.groups()).map(|group| known(store, arena, model, group, &wanted)).collect();
    let takes = |length: u32| {
        store.groups.iter().zip(&known).all(|(group, known)| {
            let seen = first_kept(group.window, length);
            (seen..length).all(|position| known[position as usize])
        })
    };
    (1..tokens.len() as u32).rev().find(|&length| takes(length)).unwrap_or(0)
}

/// For each position whether some block has its row with those before it in the block.
fn known(store: &Store, arena: &TestArena, model: &Model, group: usize, wanted: &Rows) -> Vec<bool> {
    let block_tokens = store.groups[group].block_tokens as usize;
    let pool = &store.groups[group].pool;
    let mut known = vec![false; wanted.rows.len()];
    let mut offer = |index: usize, block: u32, rows: usize| {
        let cells: &[Option<Cell>] = &arena.blocks[&(group, block)][..rows];
        let first = index * block_tokens;
        for (position, &cell) in (first..known.len()).zip(cells) {
            if cell != Some(in_group(wanted.rows[position], group)) {
                break;
            }
            known[position] = true;
        }
    };
    for index in 0..wanted.rows.len().div_ceil(block_tokens) {
        for block in 0..pool.total() {
            if let Some(name) = pool.entry(block) {
                offer(index, block, name.rows as usize);
            }
        }
        let donors = model.iter().filter(|(_, rows)| !rows.shifted && rows.prepared.is_empty());
        for (&id, rows) in donors {
            let filled = rows.rows.len().saturating_sub(index * block_tokens).min(block_tokens);
            let runs = store.rows(group, id);
            let start = (index * block_tokens) as u32;
            if let Some(run) = runs.iter().find(|run| run.start == start && run.block != EVICTED) {
                offer(index, run.block, filled.min(run.rows as usize));
            }
        }
    }
    known
}

/// The state of every row before a token is a fold of them; used here to keep the model's own
/// arithmetic honest.
#[test]
fn rows_of_equal_tokens_are_equal_and_others_differ() {
    let rows = |tokens: &[u32], salt| {
        let mut rows = Rows::new(salt);
        rows.append(tokens);
        rows.rows
    };
    let (a, b) = (rows(&[1, 2, 3], None), rows(&[1, 9, 3], None));
    assert_eq!(a[0], b[0]);
    assert!(a[1] != b[1] && a[2] != b[2]);
    assert_ne!(a[0], rows(&[1], Some(0))[0]);
    let state = State::new(None);
    assert_ne!(state.row(1, 0).value, state.row(1, 1).value);
}
