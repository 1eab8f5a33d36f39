//! A store with its arena and a model of both: each operation runs on all and is compared.

use std::collections::BTreeSet;

use minfer_graph::backend::KvArena;
use minfer_graph::{BlockTable, EVICTED, KvRun, KvSpec};

use super::arena::{Cell, Fault, TestArena, buffer, place};
use super::check::{check, first_kept, longest_reuse};
use super::model::{Model, Rows, in_group};
use crate::kv::{Demand, SequenceId, SequenceLayout, Store, StoreError, StoreOptions};

/// A store, its arena, and what they should hold.
pub(super) struct World {
    pub(super) store: Store,
    pub(super) arena: TestArena,
    pub(super) model: Model,
}

impl World {
    pub(super) fn new(spec: &KvSpec, options: StoreOptions, hash_mask: u64) -> World {
        let store = Store::with_hash_mask(spec, options, hash_mask);
        World { store, arena: TestArena::new(spec), model: Model::new() }
    }

    pub(super) fn open(&mut self, tokens: &[u32], salt: Option<u64>) -> SequenceId {
        let longest = match self.store.cache {
            true => longest_reuse(&self.store, &self.arena, &self.model, tokens, salt),
            false => 0,
        };
        self.check_room(tokens, salt);
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
        id
    }

    /// What is said to have room has it.
    fn check_room(&self, tokens: &[u32], salt: Option<u64>) {
        if !has_room(&self.store, &[], tokens, salt) {
            return;
        }
        let (mut store, mut arena) = (self.store.clone(), self.arena.clone());
        let id = store.create();
        let reused = store.reuse(id, tokens, salt) as usize;
        store.prepare(&mut arena, id, &tokens[reused..]).expect("what has room has cells");
    }

    fn has_room_for(&self, demand: Demand) -> bool {
        self.store.has_room(&[demand], &self.store.droppable([]))
    }

    pub(super) fn feed(&mut self, id: SequenceId, tokens: &[u32], faults: bool) {
        let lacks: Vec<u32> =
            (0..self.store.groups()).map(|group| self.lacks(group, id, tokens.len())).collect();
        let room = (0..self.store.groups()).all(|group| lacks[group] <= self.available(group));
        let length = self.store.length(id) + tokens.len() as u32;
        assert_eq!(self.has_room_for(self.store.demand_of_growth(id, u32::MAX, length)), room);
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

    /// Stores rows as a step does; no cell of them may be in a block that another sequence reads or
    /// that has a name.
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
            assert!(written.iter().all(|&block| names.entry(block).is_none()), "a named block is written");
            for (cell, &row) in cells.into_iter().zip(rows) {
                *self.arena.cell(group, cell) = Some(in_group(row, group));
            }
        }
    }

    /// Blocks that a sequence needs for more tokens: those behind its last one, and one for a last
    /// one that is shared.
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

    pub(super) fn fork(&mut self, id: SequenceId) -> SequenceId {
        let (fork, copy) = (self.store.fork(id), self.model[&id].clone());
        self.model.insert(fork, copy);
        fork
    }

    pub(super) fn close(&mut self, id: SequenceId) {
        self.spoil(id);
        self.store.drop_sequence(&mut self.arena, id);
        self.model.remove(&id);
    }

    pub(super) fn publish(&mut self, id: SequenceId) {
        self.store.publish(id);
        let rows = self.model.get_mut(&id).expect("the sequence lives");
        let tokens = std::mem::take(&mut rows.prepared);
        rows.append(&tokens);
    }

    pub(super) fn undo(&mut self, id: SequenceId) {
        self.spoil(id);
        self.store.undo(&mut self.arena, id);
        self.model.get_mut(&id).expect("the sequence lives").prepared.clear();
    }

    /// A step that failed leaves anything in the cells that were prepared for it.
    pub(super) fn spoil(&mut self, id: SequenceId) {
        let garbage = vec![Cell { value: 0xbad, rotated_at: 0 }; self.model[&id].prepared.len()];
        self.write(id, &garbage);
    }

    pub(super) fn truncate(&mut self, id: SequenceId, short_of: u32) {
        let length = self.model[&id].length();
        let result = self.store.truncate(&mut self.arena, id, length + 1);
        assert!(matches!(result, Err(StoreError::TooShort { .. })));
        let target = length.saturating_sub(short_of);
        let blind = self.is_blind(id, target, |position| position);
        assert_eq!(self.store.can_truncate(id, target), !blind);
        assert_eq!(self.store.can_truncate_layout(&self.store.layout(id), target), !blind);
        if !blind {
            self.check_growth_of_less(id, target);
        }
        let result = self.store.truncate(&mut self.arena, id, target);
        assert_eq!(result.is_ok(), !blind, "{result:?}");
        if result.is_ok() {
            self.model.get_mut(&id).expect("the sequence lives").truncate(target);
        }
    }

    /// What is said to have room once a sequence is cut has it.
    fn check_growth_of_less(&self, id: SequenceId, target: u32) {
        let more = 1 + target % 40;
        if self.has_room_for(self.store.demand_of_growth(id, target, target + more)) {
            let (mut store, mut arena) = (self.store.clone(), self.arena.clone());
            store.truncate(&mut arena, id, target).expect("it sees all");
            store.prepare(&mut arena, id, &vec![7; more as usize]).expect("what has room has cells");
        }
    }

    pub(super) fn remove(&mut self, id: SequenceId, from: u32, count: u32) {
        let length = self.model[&id].length();
        let result = self.store.remove(&mut self.arena, id, from..length + 1);
        assert!(matches!(result, Err(StoreError::NoSuchTokens { .. })));
        let from = from.min(length);
        let range = from..(from + count).min(length);
        let removed = range.end - range.start;
        let old = |position| if position < range.start { position } else { position + removed };
        let blind = removed > 0 && self.is_blind(id, length - removed, old);
        // Computed from numbers only, so it may be true where no row is missing.
        let widens = self.store.removal_widens_sight(length, &range);
        assert!(widens || !blind, "{range:?} of {length}");
        let result = self.store.remove(&mut self.arena, id, range.clone());
        assert_eq!(result.is_ok(), !blind, "{result:?}");
        if result.is_ok() {
            self.model.get_mut(&id).expect("the sequence lives").remove(range);
        }
    }

    /// Whether the next token of a sequence cut to `length` would miss a row; `old` is a position's
    /// place today.
    fn is_blind(&self, id: SequenceId, length: u32, old: impl Fn(u32) -> u32) -> bool {
        self.store.groups.iter().enumerate().any(|(group, spec)| {
            let runs = self.store.rows(group, id);
            (first_kept(spec.window, length)..length).any(|position| {
                let run = runs.iter().find(|run| old(position) < run.end());
                run.is_none_or(|run| run.block == EVICTED)
            })
        })
    }

    pub(super) fn evict(&mut self, id: SequenceId, anchors: u32) {
        let held = self.store.sequence_blocks(id).blocks;
        let count = self.store.evict_window(&mut self.arena, id, anchors);
        assert_eq!(held - self.store.sequence_blocks(id).blocks, u64::from(count));
        for (group, spec) in self.store.groups.iter().enumerate() {
            let seen = first_kept(spec.window, self.model[&id].length());
            let runs = self.store.rows(group, id);
            let aligned = matches!(self.store.table(group, id), BlockTable::Aligned(_));
            for block in runs.iter().map(|run| run.block).filter(|&block| block != EVICTED) {
                let mut of_block = runs.iter().filter(|run| run.block == block);
                let end = |run: &KvRun| match aligned {
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
    pub(super) fn restore(&mut self, id: SequenceId, swapped: bool, faults: bool) {
        let layout = self.store.layout(id);
        let rows = self.read(id);
        if swapped {
            self.store.drop_sequence(&mut self.arena, id);
        }
        let model = self.model[&id].clone();
        if swapped {
            self.model.remove(&id);
        }
        let restore =
            |store: &mut Store, arena: &mut TestArena| store.restore(arena, layout.clone(), model.salt);
        if faults {
            self.under_faults(restore, |store, arena, id| store.drop_sequence(arena, id));
        }
        let room = (0..self.store.groups()).all(|group| {
            let wanted = blocks_of(&layout, group, self.store.groups[group].block_tokens);
            wanted <= self.available(group)
        });
        let demand = self.store.demand_of_layout(&layout, layout.tokens.len() as u32);
        assert!(room || !self.has_room_for(demand));
        let result = restore(&mut self.store, &mut self.arena);
        assert_eq!(result.is_ok(), room, "{result:?}");
        let Ok(id) = result else { return };
        self.fill(id, &rows);
        self.store.publish(id);
        assert_eq!(self.store.layout(id), layout);
        self.model.insert(id, model);
    }

    /// The bytes of every row, by group and position.
    pub(super) fn read(&self, id: SequenceId) -> Vec<Vec<Vec<u8>>> {
        let group = |group: usize| {
            let row = |run: &KvRun, row: u32| {
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

    pub(super) fn fill(&mut self, id: SequenceId, rows: &[Vec<Vec<u8>>]) {
        for (group, rows) in rows.iter().enumerate() {
            for run in self.store.rows(group, id).iter().filter(|run| run.block != EVICTED) {
                let bytes = rows[run.start as usize..run.end() as usize].concat();
                let place = place(group, run.block, run.offset..run.offset + run.rows);
                self.arena.write_rows(&place, &bytes).expect("rows are written");
            }
        }
    }

    pub(super) fn compact(&mut self, most: u32, faults: bool) {
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

    /// Carries an operation out on copies, with each of its commits and copies failing in turn:
    /// alone, and with all after it. Either it fails and nothing has changed, or memory of cached
    /// blocks helped and `revert` leads back.
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

/// Whether a new sequence has room beside others that grow to so many tokens.
pub(super) fn has_room(
    store: &Store,
    grown: &[(SequenceId, u32)],
    tokens: &[u32],
    salt: Option<u64>,
) -> bool {
    let none = store.droppable([]);
    let grown = grown.iter().map(|&(id, length)| store.demand_of_growth(id, u32::MAX, length));
    let new = store.demand_of_new(tokens, tokens.len() as u32, salt, &none);
    store.has_room(&grown.chain([new]).collect::<Vec<_>>(), &none)
}

/// Blocks that a layout's rows take.
fn blocks_of(layout: &SequenceLayout, group: usize, block_tokens: u32) -> u32 {
    let mut present = Vec::new();
    for run in &layout.groups[group] {
        present.extend(std::iter::repeat_n(!run.evicted, run.rows as usize));
    }
    match layout.shifted {
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
