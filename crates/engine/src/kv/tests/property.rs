//! Random operations on small geometries, each against the model and under every fault.

use std::cell::{Cell as Counter, RefCell};
use std::collections::BTreeSet;

use minfer_graph::backend::KvArena;
use minfer_graph::{BlockTable, EVICTED, KvSpec};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::arena::{Cell, Fault, TestArena, buffer, place, spec};
use super::check::{check, first_kept, longest_reuse};
use super::model::{Model, Rows, in_group};
use crate::kv::{KvStats, Placement, SequenceId, Shape, Store, StoreError, StoreOptions};

/// Cases of the test, and operations that they must come to.
const CASES: u32 = 1080;
const OPERATIONS: u64 = 200_000;

#[derive(Debug, Clone)]
struct Operation {
    verb: Verb,
    /// Which of the living sequences.
    sequence: usize,
    /// Every commit and copy of it fails once before it is carried out.
    faults: bool,
}

#[derive(Debug, Clone)]
enum Verb {
    Open { tokens: Tokens, salt: Option<u64> },
    Feed(Tokens),
    Publish,
    Undo,
    Truncate { short_of: u32 },
    Remove { from: u32, count: u32 },
    Fork,
    Evict { anchors: u32 },
    Restore { swapped: bool },
    Compact { most: u32 },
    Trim { most: u64 },
    Drop,
}

/// Tokens that sequences of one kind have in common, but for one of them.
#[derive(Debug, Clone, Copy)]
struct Tokens {
    kind: u32,
    count: u32,
    odd_one: Option<u32>,
}

impl Tokens {
    fn behind(self, length: u32) -> Vec<u32> {
        let token = |position: u32| match self.odd_one {
            Some(odd) if odd + length == position => 9,
            _ => (self.kind + position * position / 3) % 5,
        };
        (length..length + self.count).map(token).collect()
    }
}

fn tokens(most: u32) -> impl Strategy<Value = Tokens> {
    (0..2u32, 0..most, prop::option::weighted(0.3, 0..most)).prop_map(|(kind, count, odd_one)| Tokens {
        kind,
        count,
        odd_one,
    })
}

fn operation() -> impl Strategy<Value = Operation> {
    let salt = || prop::option::weighted(0.2, 0..2u64);
    let verb = prop_oneof![
        4 => (tokens(110), salt()).prop_map(|(tokens, salt)| Verb::Open { tokens, salt }),
        10 => tokens(60).prop_map(Verb::Feed),
        6 => Just(Verb::Publish),
        1 => Just(Verb::Undo),
        2 => (0..70u32).prop_map(|short_of| Verb::Truncate { short_of }),
        2 => (0..60u32, 0..40u32).prop_map(|(from, count)| Verb::Remove { from, count }),
        2 => Just(Verb::Fork),
        3 => prop_oneof![Just(0), 0..40u32].prop_map(|anchors| Verb::Evict { anchors }),
        1 => any::<bool>().prop_map(|swapped| Verb::Restore { swapped }),
        4 => (0..6u32).prop_map(|most| Verb::Compact { most }),
        1 => (0..6u64).prop_map(|most| Verb::Trim { most }),
        3 => Just(Verb::Drop),
    ];
    (verb, 0..6usize, prop::bool::weighted(0.2)).prop_map(|(verb, sequence, faults)| Operation {
        verb,
        sequence,
        faults,
    })
}

fn geometry() -> impl Strategy<Value = KvSpec> {
    prop_oneof![
        Just(spec(&[(16, None, 14)])),
        Just(spec(&[(64, None, 6)])),
        Just(spec(&[(16, None, 14), (16, Some(20), 12)])),
        Just(spec(&[(16, None, 16), (64, Some(40), 5)])),
        Just(spec(&[(64, None, 5), (16, Some(24), 14)])),
        Just(spec(&[(16, Some(33), 9)])),
        Just(spec(&[(16, Some(1), 9), (16, Some(2), 9)])),
    ]
}

/// A store, its arena, and what they should hold.
struct World {
    store: Store,
    arena: TestArena,
    model: Model,
}

impl World {
    fn apply(&mut self, Operation { verb, sequence, faults }: Operation) {
        if let Verb::Open { tokens, salt } = verb {
            return if self.model.len() < 6 {
                self.open(&tokens.behind(0), salt)
            };
        }
        let Some(id) = self.model.keys().nth(sequence).copied() else { return };
        let settled = self.model[&id].prepared.is_empty();
        match verb {
            Verb::Open { .. } => (),
            Verb::Feed(tokens) if settled => self.feed(id, &tokens.behind(self.model[&id].length()), faults),
            Verb::Publish => self.publish(id),
            Verb::Undo => self.undo(id),
            Verb::Truncate { short_of } if settled => self.truncate(id, short_of),
            Verb::Remove { from, count } if settled => self.remove(id, from, count),
            Verb::Fork if settled && self.model.len() < 6 => {
                let copy = self.model[&id].clone();
                self.model.insert(self.store.fork(id), copy);
            }
            Verb::Evict { anchors } if settled => self.evict(id, anchors),
            Verb::Restore { swapped } if settled && self.model.len() < 6 => self.restore(id, swapped, faults),
            Verb::Compact { most } if self.model.values().all(|rows| rows.prepared.is_empty()) => {
                self.compact(most, faults);
            }
            Verb::Trim { most } => {
                self.store.trim(&mut self.arena, most);
                assert!(self.store.stats().blocks_cached <= most);
            }
            Verb::Drop => {
                self.spoil(id);
                self.store.drop_sequence(&mut self.arena, id);
                self.model.remove(&id);
            }
            _ => (),
        }
    }

    fn open(&mut self, tokens: &[u32], salt: Option<u64>) {
        let longest = match self.store.cache {
            true => longest_reuse(&self.store, &self.arena, &self.model, tokens, salt),
            false => 0,
        };
        self.check_fitting(tokens, salt);
        let before = self.store.stats();
        assert_eq!(self.store.reusable(tokens, salt), longest);
        let id = self.store.create();
        assert_eq!(self.store.reuse(id, tokens, salt), longest);
        let mut rows = Rows::new(salt);
        rows.append(&tokens[..longest as usize]);
        self.model.insert(id, rows);
        let after = self.store.stats();
        assert_eq!(after.tokens_reused - before.tokens_reused, u64::from(longest));
        assert_eq!(after.hits - before.hits, u64::from(longest > 0));
    }

    /// What is said to fit does fit.
    fn check_fitting(&self, tokens: &[u32], salt: Option<u64>) {
        if self.store.fitting(&[], [(tokens, salt)].into_iter()) == 0 {
            return;
        }
        let (mut store, mut arena) = (self.store.clone(), self.arena.clone());
        let id = store.create();
        let reused = store.reuse(id, tokens, salt) as usize;
        store.prepare(&mut arena, id, &tokens[reused..]).expect("what fits has cells");
    }

    fn feed(&mut self, id: SequenceId, tokens: &[u32], faults: bool) {
        let lacks: Vec<u32> =
            (0..self.store.groups()).map(|group| self.lacks(group, id, tokens.len())).collect();
        let room = (0..self.store.groups()).all(|group| lacks[group] <= self.available(group));
        let prepare = |store: &mut Store, arena: &mut TestArena| store.prepare(arena, id, tokens);
        if faults {
            self.under_faults(prepare, |store, arena, ()| store.undo(arena, id));
        }
        let result = prepare(&mut self.store, &mut self.arena);
        assert_eq!(result.is_ok(), room, "{result:?}");
        if let Err(error) = result {
            return assert!(matches!(error, StoreError::NoBlocks { .. }), "{error}");
        }
        let rows = self.model[&id].next(tokens);
        self.model.get_mut(&id).expect("the sequence lives").prepared = tokens.to_vec();
        self.write(id, &rows);
    }

    /// Stores rows as a step does; no cell of them may be in a block that another sequence reads or that has a name.
    fn write(&mut self, id: SequenceId, rows: &[Cell]) {
        for group in 0..self.store.groups() {
            let block_tokens = self.store.groups[group].block_tokens;
            let cells: Vec<u32> = self.store.cells(group, id).collect();
            assert_eq!(cells.len(), rows.len());
            let written: BTreeSet<u32> = cells.iter().map(|cell| cell / block_tokens).collect();
            for &other in self.model.keys().filter(|&&other| other != id) {
                let read = self.store.rows(group, other);
                assert!(read.iter().all(|run| !written.contains(&run.block)), "written through a share");
            }
            let names = &self.store.groups[group].pool;
            assert!(written.iter().all(|&block| names.name(block).is_none()), "a named block is written");
            for (cell, &row) in cells.into_iter().zip(rows) {
                *self.arena.cell(group, cell) = Some(in_group(row, group));
            }
        }
    }

    /// Blocks that a sequence needs for more tokens: those behind its last one, and one for a last one that is shared.
    fn lacks(&self, group: usize, id: SequenceId, tokens: usize) -> u32 {
        if tokens == 0 {
            return 0;
        }
        let block_tokens = self.store.groups[group].block_tokens;
        let runs = self.store.rows(group, id);
        let last = runs.last().filter(|run| run.block != EVICTED);
        let filled = last.map_or(block_tokens, |run| run.offset + run.rows);
        let sharers = self.model.keys().filter(|&&other| {
            let of_other = self.store.rows(group, other);
            of_other.iter().any(|run| Some(run.block) == last.map(|last| last.block))
        });
        let copied = filled < block_tokens && sharers.count() > 1;
        (tokens as u32).saturating_sub(block_tokens - filled).div_ceil(block_tokens) + u32::from(copied)
    }

    /// Blocks of a group that no sequence's rows lie in.
    fn available(&self, group: usize) -> u32 {
        let runs = self.model.keys().flat_map(|&id| self.store.rows(group, id));
        let used: BTreeSet<u32> = runs.map(|run| run.block).filter(|&block| block != EVICTED).collect();
        self.store.groups[group].pool.total() - used.len() as u32
    }

    fn publish(&mut self, id: SequenceId) {
        self.store.publish(id);
        let rows = self.model.get_mut(&id).expect("the sequence lives");
        let tokens = std::mem::take(&mut rows.prepared);
        rows.append(&tokens);
    }

    fn undo(&mut self, id: SequenceId) {
        self.spoil(id);
        self.store.undo(&mut self.arena, id);
        self.model.get_mut(&id).expect("the sequence lives").prepared.clear();
    }

    /// A step that failed leaves anything in the cells that were prepared for it.
    fn spoil(&mut self, id: SequenceId) {
        let garbage = vec![Cell { value: 0xbad, rotated_at: 0 }; self.model[&id].prepared.len()];
        self.write(id, &garbage);
    }

    fn truncate(&mut self, id: SequenceId, short_of: u32) {
        let length = self.model[&id].length();
        let result = self.store.truncate(&mut self.arena, id, length + 1);
        assert!(matches!(result, Err(StoreError::TooShort { .. })));
        let target = length.saturating_sub(short_of);
        let blind = self.is_blind(id, target, |position| position);
        let result = self.store.truncate(&mut self.arena, id, target);
        assert_eq!(result.is_ok(), !blind, "{result:?}");
        if result.is_ok() {
            self.model.get_mut(&id).expect("the sequence lives").truncate(target);
        }
    }

    fn remove(&mut self, id: SequenceId, from: u32, count: u32) {
        let length = self.model[&id].length();
        let result = self.store.remove(&mut self.arena, id, from..length + 1);
        assert!(matches!(result, Err(StoreError::NoSuchTokens { .. })));
        let from = from.min(length);
        let range = from..(from + count).min(length);
        let removed = range.end - range.start;
        let old = |position| if position < range.start { position } else { position + removed };
        let blind = removed > 0 && self.is_blind(id, length - removed, old);
        let result = self.store.remove(&mut self.arena, id, range.clone());
        assert_eq!(result.is_ok(), !blind, "{result:?}");
        if result.is_ok() {
            self.model.get_mut(&id).expect("the sequence lives").remove(range);
        }
    }

    /// Whether the next token of a sequence cut to `length` would miss a row; `old` is a position's place today.
    fn is_blind(&self, id: SequenceId, length: u32, old: impl Fn(u32) -> u32) -> bool {
        self.store.groups.iter().enumerate().any(|(group, spec)| {
            let runs = self.store.rows(group, id);
            (first_kept(spec.window, length)..length).any(|position| {
                let run = runs.iter().find(|run| old(position) < run.end());
                run.is_none_or(|run| run.block == EVICTED)
            })
        })
    }

    fn evict(&mut self, id: SequenceId, anchors: u32) {
        let held = self.store.sequence_blocks(id).blocks;
        let count = self.store.evict_window(&mut self.arena, id, anchors);
        assert_eq!(held - self.store.sequence_blocks(id).blocks, u64::from(count));
        for (group, spec) in self.store.groups.iter().enumerate() {
            let seen = first_kept(spec.window, self.model[&id].length());
            let runs = self.store.rows(group, id);
            let aligned = matches!(self.store.table(group, id), BlockTable::Aligned(_));
            for block in runs.iter().map(|run| run.block).filter(|&block| block != EVICTED) {
                let mut of_block = runs.iter().filter(|run| run.block == block);
                let end = |run: &minfer_graph::KvRun| match aligned {
                    true => (run.start / spec.block_tokens + 1) * spec.block_tokens,
                    false => run.end(),
                };
                assert!(of_block.any(|run| run.start < anchors || end(run) > seen), "block {block} is kept");
            }
            if let Some(run) = runs.iter().find(|run| run.block == EVICTED && run.start < anchors) {
                assert!(run.end() <= seen);
            }
        }
    }

    /// Reads a sequence out and makes it anew, with its first self gone or not.
    fn restore(&mut self, id: SequenceId, swapped: bool, faults: bool) {
        let shape = self.store.shape(id);
        let rows = self.read(id);
        if swapped {
            self.store.drop_sequence(&mut self.arena, id);
        }
        let model = self.model[&id].clone();
        if swapped {
            self.model.remove(&id);
        }
        let restore =
            |store: &mut Store, arena: &mut TestArena| store.restore(arena, shape.clone(), model.salt);
        if faults {
            self.under_faults(restore, |store, arena, id| store.drop_sequence(arena, id));
        }
        let room = (0..self.store.groups()).all(|group| {
            let wanted = blocks_of(&shape, group, self.store.groups[group].block_tokens);
            wanted <= self.available(group)
        });
        let result = restore(&mut self.store, &mut self.arena);
        assert_eq!(result.is_ok(), room, "{result:?}");
        let Ok(id) = result else { return };
        self.fill(id, &rows);
        self.store.publish(id);
        assert_eq!(self.store.shape(id), shape);
        self.model.insert(id, model);
    }

    /// The bytes of every row, by group and position.
    fn read(&self, id: SequenceId) -> Vec<Vec<Vec<u8>>> {
        let group = |group: usize| {
            let row = |run: &minfer_graph::KvRun, row: u32| {
                let mut bytes = buffer(u32::from(run.block != EVICTED));
                if run.block != EVICTED {
                    let rows = run.offset + row..run.offset + row + 1;
                    self.arena.read_rows(&place(group, run.block, rows), &mut bytes).expect("rows are read");
                }
                bytes
            };
            let runs = self.store.rows(group, id);
            runs.iter().flat_map(|run| (0..run.rows).map(|at| row(run, at)).collect::<Vec<_>>()).collect()
        };
        (0..self.store.groups()).map(group).collect()
    }

    fn fill(&mut self, id: SequenceId, rows: &[Vec<Vec<u8>>]) {
        for (group, rows) in rows.iter().enumerate() {
            for run in self.store.rows(group, id).iter().filter(|run| run.block != EVICTED) {
                let bytes = rows[run.start as usize..run.end() as usize].concat();
                let place = place(group, run.block, run.offset..run.offset + run.rows);
                self.arena.write_rows(&place, &bytes).expect("rows are written");
            }
        }
    }

    fn compact(&mut self, most: u32, faults: bool) {
        let compact = |store: &mut Store, arena: &mut TestArena| store.compact(arena, most);
        if faults {
            self.under_faults(compact, |_, _, _| unreachable!("a refused move is an error"));
        }
        let before = self.store.stats().blocks_moved;
        let moved = compact(&mut self.store, &mut self.arena).expect("no fault");
        assert_eq!(self.store.stats().blocks_moved - before, u64::from(moved));
        let scattered = self.store.groups.iter().any(|group| {
            let used = group.pool.live() + group.pool.cached();
            group.pool.free_blocks()[..used as usize].contains(&true)
        });
        assert!(moved <= most && (moved == most || !scattered));
    }

    /// Carries an operation out on copies, with each of its commits and copies failing in turn: alone, and with all after it.
    /// Either it fails and nothing has changed, or memory of cached blocks helped and `revert` leads back.
    fn under_faults<R: std::fmt::Debug>(
        &self,
        operation: impl Fn(&mut Store, &mut TestArena) -> Result<R, StoreError>,
        revert: impl Fn(&mut Store, &mut TestArena, R),
    ) {
        for fault in [Fault::Once as fn(u32) -> Fault, Fault::From] {
            for at in 0.. {
                let (mut store, mut arena) = (self.store.clone(), self.arena.clone());
                arena.set_fault(Some(fault(at)));
                let result = operation(&mut store, &mut arena);
                if !arena.failed {
                    break;
                }
                let evicted = store.stats().evictions > self.store.stats().evictions;
                match result {
                    Ok(made) => {
                        assert!(evicted, "a refusal went unnoticed");
                        revert(&mut store, &mut arena, made);
                    }
                    Err(_) if !evicted => assert_eq!(normal(&store), normal(&self.store)),
                    Err(_) => (),
                }
                check(&store, &arena, &self.model);
            }
        }
    }
}

/// Blocks that a shape's rows take.
fn blocks_of(shape: &Shape, group: usize, block_tokens: u32) -> u32 {
    let mut present = Vec::new();
    for run in &shape.groups[group] {
        present.extend(std::iter::repeat_n(!run.evicted, run.rows as usize));
    }
    match shape.shifted {
        true => (present.iter().filter(|&&present| present).count() as u32).div_ceil(block_tokens),
        false => {
            let blocks = present.chunks(block_tokens as usize);
            blocks.filter(|rows| rows.contains(&true) || rows.len() < block_tokens as usize).count() as u32
        }
    }
}

/// A store without what changes nothing: the order of free blocks.
fn normal(store: &Store) -> Store {
    let mut store = store.clone();
    store.groups.iter_mut().for_each(|group| group.pool.forget_order());
    store.clock = 0;
    store
}

#[test]
fn agrees_with_a_naive_model() {
    let done = Counter::new(0u64);
    let seen = RefCell::new(KvStats::default());
    let case = (
        prop::collection::vec(operation(), 1..400),
        geometry(),
        prop::option::of(any::<u64>()),
        any::<bool>(),
        prop::bool::weighted(0.9),
    );
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) };
    let outcome = TestRunner::new(config).run(&case, |(operations, spec, shuffle, collide, cache)| {
        let placement = shuffle.map_or(Placement::Fresh, Placement::Shuffled);
        let options = StoreOptions { placement, cache, fingerprint: 5, ..StoreOptions::default() };
        let store = Store::with_names(&spec, options, if collide { 1 } else { u64::MAX });
        let mut world = World { store, arena: TestArena::new(&spec), model: Model::new() };
        for operation in operations {
            world.apply(operation);
            check(&world.store, &world.arena, &world.model);
            done.set(done.get() + 1);
        }
        let (stats, mut seen) = (world.store.stats(), seen.borrow_mut());
        seen.hits += stats.hits;
        seen.tokens_reused += stats.tokens_reused;
        seen.evictions += stats.evictions;
        seen.blocks_copied += stats.blocks_copied;
        seen.blocks_moved += stats.blocks_moved;
        Ok(())
    });
    outcome.unwrap();
    let KvStats { hits, tokens_reused, evictions, blocks_copied, blocks_moved, .. } = seen.into_inner();
    println!(
        "{} operations agreed: {hits} hits of {tokens_reused} tokens, {evictions} evictions, {blocks_copied} copies on write, \
         {blocks_moved} moves",
        done.get()
    );
    assert!(done.get() >= OPERATIONS, "{} operations", done.get());
    assert!([hits, evictions, blocks_copied, blocks_moved].into_iter().all(|count| count > 300));
}
