//! Removal, window eviction, compaction and restoring: exact numbers and error messages.

use minfer_graph::{BlockTable, EVICTED, KvRun, KvSpec};

use super::arena::{Fault, spec};
use super::check::check;
use super::world::World;
use crate::kv::{LayoutRun, SequenceId, SequenceLayout, StoreOptions};

fn world(spec: &KvSpec) -> World {
    World::new(spec, StoreOptions { cache: true, fingerprint: 3, ..StoreOptions::default() }, u64::MAX)
}

fn tokens(count: u32) -> Vec<u32> {
    (0..count).map(|index| index * index % 11).collect()
}

impl World {
    fn fed(&mut self, count: u32) -> SequenceId {
        let id = self.open(&[], None);
        self.grow(id, count);
        id
    }

    fn grow(&mut self, id: SequenceId, count: u32) {
        let length = self.model[&id].length();
        self.feed(id, &tokens(length + count)[length as usize..], false);
        self.publish(id);
        check(&self.store, &self.arena, &self.model);
    }

    /// A sequence of another store, with its rows.
    fn adopt(&mut self, other: &World, id: SequenceId) -> SequenceId {
        let (shape, rows) = (other.store.layout(id), other.read(id));
        let new = self.store.restore(&mut self.arena, shape, None).unwrap();
        self.fill(new, &rows);
        self.store.publish(new);
        self.model.insert(new, other.model[&id].clone());
        check(&self.store, &self.arena, &self.model);
        new
    }
}

#[test]
fn a_chat_that_is_shifted_again_and_again_keeps_where_each_row_was_rotated() {
    let mut world = world(&spec(&[(16, None, 9), (16, Some(24), 9)]));
    let id = world.fed(60);
    for turn in 1..=20 {
        world.remove(id, 10, 20);
        world.evict(id, 0);
        world.grow(id, 20);
        assert_eq!((world.store.length(id), world.store.is_shifted(id)), (60, true));
        let runs = world.store.rows(0, id);
        assert_eq!((runs[0].rows, runs[0].rope_offset, runs[1].rope_offset), (10, 0, 20 * turn.min(2)));
    }
    assert_eq!(world.store.stats().blocks_copied, 0);
    let lengths: Vec<u32> = world.store.rows(1, id).iter().map(|run| run.rows).collect();
    assert_eq!(lengths.iter().sum::<u32>(), 60);
    world.truncate(id, 60);
    assert!(!world.store.is_shifted(id));
    world.grow(id, 20);
    assert_eq!(world.known_to(20), 19);
}

/// What attention keeps for each rope offset was reckoned with beforehand: neither removals nor
/// rows from elsewhere pass that.
#[test]
fn a_sequence_has_no_more_rope_offsets_than_were_reckoned_with() {
    let spec = spec(&[(16, None, 9), (16, Some(24), 9)]);
    let bounded = |most| {
        World::new(&spec, StoreOptions { most_rope_offsets: Some(most), ..StoreOptions::default() }, u64::MAX)
    };
    let mut world = bounded(2);
    let id = world.fed(30);
    for _ in 0..2 {
        world.remove(id, 0, 2);
        world.grow(id, 5);
    }
    let before = world.store.clone();
    let error = world.store.remove(&mut world.arena, id, 0..2).unwrap_err();
    let text = |found, most| {
        format!("rows with {found} rope offsets, where those of a sequence have {most} at most")
    };
    assert_eq!((error.to_string(), &world.store), (text(3, 2), &before));
    let shape = world.store.layout(id);
    let mut other = bounded(1);
    let error = other.store.restore(&mut other.arena, shape.clone(), None).unwrap_err();
    assert_eq!(error.to_string(), text(2, 1));
    // Groups count together, whatever a file says that each of them has.
    let mut apart = shape;
    apart.groups[1].iter_mut().for_each(|run| run.rope_offset += 1);
    let error = bounded(4).store.restore(&mut other.arena, apart, None).unwrap_err();
    assert_eq!(error.to_string(), text(5, 4));
    // What forgets all the rows of an offset may have another one.
    world.remove(id, 0, 30);
    assert_eq!(world.store.layout(id).groups[0].iter().map(|run| run.rope_offset).max(), Some(32));
}

impl World {
    fn known_to(&self, count: u32) -> u32 {
        self.store.reusable(&tokens(count), None)
    }
}

#[test]
fn a_shifted_sequence_writes_behind_its_rows_and_is_not_published() {
    let mut world = world(&spec(&[(16, None, 9)]));
    let id = world.fed(20);
    world.remove(id, 2, 5);
    let run = |start, rows, block, offset, rope_offset| KvRun { start, rows, block, offset, rope_offset };
    let cut = [run(0, 2, 0, 0, 0), run(2, 9, 0, 7, 5), run(11, 4, 1, 0, 5)];
    assert_eq!(world.store.table(0, id), BlockTable::Shifted(&cut));
    world.grow(id, 30);
    let runs = [&cut[..], &[run(15, 12, 1, 4, 0), run(27, 16, 2, 0, 0), run(43, 2, 3, 0, 0)]].concat();
    assert_eq!(world.store.table(0, id), BlockTable::Shifted(&runs));
    assert_eq!(world.known_to(40), 16);
    world.close(id);
    assert_eq!((world.known_to(40), world.store.stats().blocks_cached), (16, 1));
}

#[test]
fn a_removal_gives_whole_blocks_back_and_writes_no_row() {
    let mut world = world(&spec(&[(16, None, 9)]));
    let id = world.fed(70);
    world.arena.set_fault(Some(Fault::From(0)));
    world.remove(id, 10, 40);
    assert!(!world.arena.failed);
    assert_eq!(world.store.sequence_blocks(id).blocks, 3);
    check(&world.store, &world.arena, &world.model);
}

#[test]
fn a_window_gives_back_what_no_later_token_sees_but_anchors() {
    let mut world = world(&spec(&[(16, None, 9), (16, Some(20), 9)]));
    let id = world.fed(66);
    world.evict(id, 0);
    // The next token, at 66, sees from 47 on.
    assert_eq!(world.store.table(1, id), BlockTable::Aligned(&[EVICTED, EVICTED, 2, 3, 4]));
    assert_eq!(world.store.table(0, id), BlockTable::Aligned(&[0, 1, 2, 3, 4]));
    world.grow(id, 1);
    world.evict(id, 0);
    assert_eq!(world.store.table(1, id), BlockTable::Aligned(&[EVICTED, EVICTED, EVICTED, 3, 4]));
    let error = world.store.truncate(&mut world.arena, id, 60).unwrap_err();
    let text = "KV sequence 0 cannot have 60 tokens: the next one sees position 41, whose rows a window of 20 has \
                released";
    assert_eq!(error.to_string(), text);
    let error = world.store.remove(&mut world.arena, id, 50..60).unwrap_err();
    assert!(error.to_string().contains("cannot have 57 tokens: the next one sees position 38"), "{error}");
    let error = world.store.remove(&mut world.arena, id, 50..68).unwrap_err();
    assert_eq!(error.to_string(), "KV sequence 0 has length 67: 50..68 cannot be removed");
    check(&world.store, &world.arena, &world.model);

    world.close(id);
    let id = world.fed(100);
    world.evict(id, 17);
    let runs = world.store.rows(1, id);
    let evicted: Vec<(u32, u32)> =
        runs.iter().filter(|run| run.block == EVICTED).map(|run| (run.start, run.end())).collect();
    assert_eq!(evicted, [(32, 80)]);
}

#[test]
fn compaction_moves_high_blocks_down_and_changes_no_row() {
    let mut world = world(&spec(&[(16, None, 9)]));
    let [a, b, c] = [(); 3].map(|()| world.fed(40));
    world.store.trim(&mut world.arena, 0);
    world.remove(b, 1, 3);
    world.close(a);
    world.store.trim(&mut world.arena, 0);
    let before = [b, c].map(|id| world.read(id));
    world.arena.set_fault(Some(Fault::From(3)));
    let error = world.store.compact(&mut world.arena, 9).unwrap_err();
    let text = "block 7 of KV group 0 cannot move to 1: KV copy: 256 bytes of memory were refused";
    assert_eq!(error.to_string(), text);
    check(&world.store, &world.arena, &world.model);
    world.arena.set_fault(None);
    world.compact(1, true);
    world.compact(9, true);
    check(&world.store, &world.arena, &world.model);
    assert!(world.arena.blocks.keys().map(|&(_, block)| block).eq(0..6));
    assert_eq!([b, c].map(|id| world.read(id)), before);
    assert_eq!(world.store.stats().blocks_moved, 3);
    assert_eq!(world.known_to(41), 40);
}

#[test]
fn sequences_move_between_stores_of_different_block_sizes() {
    for (from, to) in [(16, 64), (64, 16), (16, 16)] {
        for shifted in [false, true] {
            let of = |size| spec(&[(size, None, 640 / size), (size, Some(40), 640 / size)]);
            let (mut source, mut target) = (world(&of(from)), world(&of(to)));
            let id = source.fed(200);
            if shifted {
                source.remove(id, 30, 50);
            }
            source.evict(id, 0);
            let new = target.adopt(&source, id);
            let blocks = target.store.sequence_blocks(new).blocks;
            let rows: u32 =
                target.store.rows(1, new).iter().filter(|run| run.block != EVICTED).map(|run| run.rows).sum();
            let length = target.store.length(new);
            let dense = length.div_ceil(to) + (rows + length % to * u32::from(!shifted)).div_ceil(to);
            assert!(blocks <= u64::from(dense + 1), "{blocks} blocks for {length} and {rows} rows");
            target.grow(new, 70);
            target.evict(new, 0);
            target.truncate(new, 3);
            target.remove(new, 20, 150);
            target.grow(new, 20);
            let back = source.adopt(&target, new);
            assert_eq!(source.store.tokens(back), target.store.tokens(new));
        }
    }
}

#[test]
fn shapes_that_are_none_of_this_store_are_refused() {
    let mut world = world(&spec(&[(16, None, 9), (16, Some(20), 9)]));
    let run = |rows, rope_offset, evicted| LayoutRun { rows, rope_offset, evicted };
    let whole = vec![run(60, 0, false)];
    let mut refused = |groups: Vec<Vec<LayoutRun>>| {
        let shape = SequenceLayout { tokens: tokens(60), shifted: false, groups };
        let error = world.store.restore(&mut world.arena, shape, None).unwrap_err();
        let stats = world.store.stats();
        assert_eq!((stats.sequences, stats.blocks_live), (0, 0));
        error.to_string()
    };
    let cases = [
        (vec![whole.clone()], "1 groups of layers instead of 2"),
        (vec![whole.clone(), vec![run(59, 0, false)]], "group 1 has rows of 59 positions for 60 tokens"),
        (
            vec![whole.clone(), vec![run(30, 0, false), run(30, 5, false)]],
            "group 1 has rows of a shifted sequence",
        ),
        (
            vec![whole.clone(), vec![run(42, 0, true), run(18, 0, false)]],
            "group 1 lacks position 41, which the next token sees",
        ),
        (
            vec![vec![run(1, 0, true), run(59, 0, false)], whole.clone()],
            "group 0 lacks position 0, which the next token sees",
        ),
    ];
    for (groups, reason) in cases {
        assert_eq!(refused(groups), format!("these rows cannot be restored: {reason}"));
    }
    let shape = SequenceLayout { tokens: tokens(60), shifted: false, groups: vec![whole.clone(), whole] };
    let restored = [(); 2].map(|()| world.store.restore(&mut world.arena, shape.clone(), None).unwrap());
    let error = world.store.restore(&mut world.arena, shape, None).unwrap_err();
    let text = "KV sequence 2: 4 more blocks for positions 0..60, but 1 of 9 are free";
    assert_eq!(error.to_string(), text);
    restored.into_iter().for_each(|id| world.store.drop_sequence(&mut world.arena, id));
    assert!(world.arena.blocks.is_empty());
}
