//! Single cases, with numbers.

use minfer_graph::{BlockTable, KvRun};

use super::arena::{Fault, TestArena, spec};
use super::world::has_room;
use crate::kv::{SHIFTED_BLOCKS, SequenceId, Store, StoreOptions, window_blocks};
use crate::test_model::kv_spec;

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
    assert_eq!(error.to_string(), "KV sequence 1 has length 5 and cannot be cut to 6");
    arena.set_fault(Some(Fault::From(0)));
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
fn room_is_what_is_free_and_not_reserved() {
    let (mut store, mut arena) = store(6);
    let a = store.create();
    store.prepare(&mut arena, a, &[7; 16]).unwrap();
    store.publish(a);
    let most = |reserved: &[(SequenceId, u32)]| {
        (0..100).take_while(|&tokens| has_room(&store, reserved, &[7; 100][..tokens], None)).last()
    };
    assert_eq!(most(&[]), Some(80));
    assert_eq!(most(&[(a, 16)]), Some(80));
    assert_eq!(most(&[(a, 17)]), Some(64));
    assert_eq!(most(&[(a, 96)]), Some(0));
    assert_eq!(most(&[(a, 97)]), None);
}

/// In as many blocks as are said to suffice a sequence is never refused one, however its steps lie,
/// also after shifts.
#[test]
fn a_window_has_room_in_the_blocks_that_it_is_charged() {
    for (window, step_tokens, block_tokens) in
        [(1, 1, 16), (2, 7, 16), (17, 8, 16), (40, 1, 16), (64, 64, 16), (100, 300, 64), (512, 512, 64)]
    {
        for shifts in [false, true] {
            let charged = window_blocks(window, step_tokens, block_tokens);
            let blocks = charged + if shifts { SHIFTED_BLOCKS } else { 0 };
            let spec = spec(&[(block_tokens, None, 400), (block_tokens, Some(window), blocks)]);
            let options =
                StoreOptions { cache: true, step_tokens: Some(step_tokens), ..StoreOptions::default() };
            let (mut store, mut arena) = (Store::new(&spec, options), TestArena::new(&spec));
            assert_eq!(store.capacity(), 400 * u64::from(block_tokens));
            let mut id = store.create();
            let (mut most, mut fed) = (0, 0);
            while fed < 5000 {
                let count = 1 + fed * fed % step_tokens;
                let length = store.length(id) + count;
                let demand = store.demand_of_growth(id, u32::MAX, length);
                assert!(store.has_room(&[demand], &store.droppable([])));
                store.prepare(&mut arena, id, &vec![fed; count as usize]).expect("there is room");
                most = most.max(blocks - store.groups[1].pool.free() - store.groups[1].pool.cached());
                store.publish(id);
                store.evict_window(&mut arena, id, 0);
                fed += count;
                let length = store.length(id);
                let behind = window.max(2) - 1 + length % 9;
                let range = 3..length.saturating_sub(behind).max(3);
                if shifts && length > 2 * (window + step_tokens) && !range.is_empty() {
                    assert!(!store.removal_widens_sight(length, &range));
                    store.remove(&mut arena, id, range).expect("nothing is missed");
                } else if length.is_multiple_of(5) {
                    let fork = store.fork(id);
                    store.drop_sequence(&mut arena, std::mem::replace(&mut id, fork));
                }
            }
            assert!(most > charged - 3 || shifts, "{most} of {charged} blocks");
        }
    }
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
    let layout = store.layout(b);
    let c = store.restore(&mut arena, layout, None).unwrap();
    assert_eq!(store.prepared(c), 19);
    store.publish(c);
    assert_eq!(store.tokens(c), store.tokens(b));
    store.drop_sequence(&mut arena, b);
    store.drop_sequence(&mut arena, c);
    assert!(arena.blocks.is_empty());
}

#[test]
#[should_panic(expected = "KV sequence 0 has cells that are not published")]
fn cells_are_not_prepared_twice() {
    let (mut store, mut arena) = store(2);
    let id = store.create();
    store.prepare(&mut arena, id, &[7; 1]).unwrap();
    let _ = store.prepare(&mut arena, id, &[7; 1]);
}
