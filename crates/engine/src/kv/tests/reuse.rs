//! Prefix reuse, copy on write, and eviction of cached blocks.

use minfer_graph::{BlockTable, EVICTED, KvSpec};

use super::arena::{Fault, TestArena, spec};
use super::check::check;
use super::world::{World, has_room};
use crate::kv::{SequenceId, Store, StoreOptions};

fn world(spec: &KvSpec) -> World {
    World::new(spec, StoreOptions { cache: true, fingerprint: 3, ..StoreOptions::default() }, u64::MAX)
}

fn tokens(count: u32) -> Vec<u32> {
    (0..count).map(|index| index * index % 11).collect()
}

impl World {
    /// A sequence of these tokens; those that are known are not fed.
    fn filled(&mut self, tokens: &[u32]) -> SequenceId {
        let id = self.open(tokens, None);
        self.append(id, &tokens[self.store.length(id) as usize..]);
        id
    }

    fn append(&mut self, id: SequenceId, tokens: &[u32]) {
        self.feed(id, tokens, true);
        self.publish(id);
        check(&self.store, &self.arena, &self.model);
    }

    /// Tokens that a new sequence of these would not have to feed.
    fn known(&self, tokens: &[u32]) -> u32 {
        self.store.reusable(tokens, None)
    }
}

#[test]
fn a_prompt_is_known_to_the_token_while_its_sequence_lives_and_after() {
    let mut world = world(&spec(&[(16, None, 9)]));
    let first = world.filled(&tokens(40));
    for dropped in [false, true] {
        if dropped {
            world.close(first);
        }
        assert_eq!(world.known(&tokens(40)), 39);
        assert_eq!(world.known(&tokens(41)), 40);
        assert_eq!(world.known(&tokens(17)), 16);
        assert_eq!(world.known(&tokens(1)), 0);
        assert_eq!(world.known(&[&tokens(37)[..], &[99, 99]].concat()), 37);
        assert_eq!(world.known(&[&[99], &tokens(40)[..]].concat()), 0);
        assert_eq!(world.store.reusable(&tokens(40), Some(1)), 0);
    }
    assert_eq!(world.store.stats().blocks_cached, 3);
}

#[test]
fn what_is_not_published_is_not_known() {
    let mut world = world(&spec(&[(16, None, 9)]));
    let id = world.open(&tokens(40), None);
    world.feed(id, &tokens(40), false);
    assert_eq!(world.known(&tokens(40)), 0);
    world.undo(id);
    assert_eq!(world.known(&tokens(40)), 0);
    world.feed(id, &tokens(20), false);
    world.publish(id);
    world.feed(id, &tokens(40)[20..], false);
    // Only published sequences share what they have not filled; the full block is known by its
    // name.
    assert_eq!(world.known(&tokens(40)), 16);
    world.close(id);
    assert_eq!(world.known(&tokens(40)), 20);
}

#[test]
fn sharers_pay_for_the_first_row_that_differs() {
    let mut world = world(&spec(&[(16, None, 9)]));
    let first = world.filled(&tokens(40));
    let second = world.open(&[&tokens(36)[..], &[99]].concat(), None);
    let stats = world.store.stats();
    assert_eq!((stats.blocks_live, stats.blocks_shared, stats.blocks_attributed), (3, 3, 6));
    assert_eq!((stats.hits, stats.tokens_reused, stats.live_bytes), (1, 36, 3 * 16 * 16));
    let owned = world.store.sequence_blocks(second);
    assert_eq!((owned.blocks, owned.shared, owned.bytes), (3, 3, 3 * 16 * 16));
    world.append(second, &[99]);
    assert_eq!(world.store.table(0, second), BlockTable::Aligned(&[0, 1, 3]));
    world.append(first, &[98]);
    assert_eq!(world.store.table(0, first), BlockTable::Aligned(&[0, 1, 2]));
    let stats = world.store.stats();
    assert_eq!((stats.blocks_copied, stats.rows_copied, stats.blocks_shared), (1, 4, 2));
    world.close(first);
    check(&world.store, &world.arena, &world.model);
}

#[test]
fn a_continued_conversation_copies_nothing() {
    let mut world = world(&spec(&[(16, None, 4)]));
    let first = world.filled(&tokens(40));
    world.close(first);
    let second = world.filled(&tokens(50));
    assert_eq!(world.store.table(0, second), BlockTable::Aligned(&[0, 1, 2, 3]));
    let stats = world.store.stats();
    assert_eq!((stats.tokens_reused, stats.blocks_copied, stats.evictions), (40, 0, 0));
}

#[test]
fn a_known_block_is_given_up_where_its_copy_has_no_room() {
    let mut world = world(&spec(&[(16, None, 2)]));
    let first = world.filled(&tokens(32));
    world.close(first);
    let second = world.open(&[&tokens(30)[..], &[99]].concat(), None);
    assert_eq!(world.store.length(second), 30);
    world.append(second, &[99]);
    let stats = world.store.stats();
    assert_eq!((stats.blocks_live, stats.blocks_copied, stats.evictions), (2, 0, 0));
    assert_eq!(world.known(&tokens(32)), 30);
    world.truncate(second, 31);
    assert_eq!(world.store.length(second), 0);
}

#[test]
fn a_hit_needs_what_the_next_token_sees_in_every_group() {
    let mut world = world(&spec(&[(16, None, 9), (16, Some(20), 9)]));
    let id = world.filled(&tokens(96));
    world.evict(id, 0);
    assert_eq!(world.store.table(1, id), BlockTable::Aligned(&[EVICTED, EVICTED, EVICTED, EVICTED, 4, 5]));
    // What the window gave back is still cached.
    assert_eq!(world.known(&tokens(51)), 50);
    world.store.trim(&mut world.arena, 0);
    assert_eq!(world.known(&tokens(97)), 96);
    assert_eq!(world.known(&tokens(84)), 83);
    // The token at 82 sees position 63.
    assert_eq!(world.known(&tokens(83)), 0);
    world.close(id);
    let other = world.filled(&tokens(90));
    assert_eq!(world.store.stats().tokens_reused, 89);
    assert_eq!(world.store.table(1, other), BlockTable::Aligned(&[EVICTED, EVICTED, EVICTED, EVICTED, 4, 0]));
}

#[test]
fn groups_of_different_block_sizes_agree_on_the_longest() {
    let mut world = world(&spec(&[(64, None, 4), (16, Some(24), 9)]));
    let id = world.filled(&tokens(100));
    world.close(id);
    assert_eq!(world.known(&tokens(120)), 100);
    assert_eq!(world.known(&[&tokens(90)[..], &[99; 9]].concat()), 90);
    world.store.trim(&mut world.arena, 8);
    check(&world.store, &world.arena, &world.model);
    assert_eq!(world.known(&tokens(120)), 64);
}

#[test]
fn the_block_that_was_left_first_goes_first_and_ends_before_beginnings() {
    let mut world = world(&spec(&[(16, None, 4)]));
    let (old, new) = (tokens(32), [&[50], &tokens(31)[..]].concat());
    let ids = [world.filled(&old), world.filled(&new)];
    ids.into_iter().for_each(|id| world.close(id));
    assert_eq!(world.store.stats().blocks_cached, 4);
    let third = world.filled(&[60; 10]);
    assert_eq!(world.store.stats().evictions, 1);
    assert_eq!((world.known(&[&old[..], &[1]].concat()), world.known(&[&new[..], &[1]].concat())), (16, 32));
    world.append(third, &[60; 20]);
    assert_eq!((world.known(&old), world.known(&new)), (0, 31));
    assert_eq!(world.store.stats().evictions, 2);
}

#[test]
fn a_refusal_by_the_arena_takes_cached_blocks_first() {
    let mut world = world(&spec(&[(16, None, 9), (64, None, 9)]));
    let id = world.filled(&tokens(64));
    world.close(id);
    assert_eq!(world.store.stats().blocks_cached, 5);
    let id = world.open(&[9], None);
    world.arena.set_fault(Some(Fault::Once(1)));
    world.store.prepare(&mut world.arena, id, &[9]).unwrap();
    assert_eq!((world.store.stats().evictions, world.store.stats().blocks_cached), (1, 4));
    world.store.undo(&mut world.arena, id);
    world.arena.set_fault(Some(Fault::From(0)));
    let error = world.store.prepare(&mut world.arena, id, &[9]).unwrap_err();
    let text = "KV sequence 1: positions 0..1: KV block: 256 bytes of memory were refused";
    assert_eq!((error.to_string().as_str(), world.store.stats().blocks_cached), (text, 0));
    check(&world.store, &world.arena, &world.model);
}

#[test]
fn cached_blocks_count_as_room_and_shared_ones_once() {
    let mut world = world(&spec(&[(16, None, 6)]));
    let id = world.filled(&tokens(48));
    let beside = |world: &World, wanted: &[u32]| has_room(&world.store, &[(id, 48)], wanted, None);
    let alike = tokens(97);
    assert!(beside(&world, &alike[..96]) && !beside(&world, &alike));
    assert!(beside(&world, &[7; 48]) && !beside(&world, &[7; 49]));
    let fork = world.fork(id);
    let grown = [(id, 49), (fork, 49)];
    assert!(
        has_room(&world.store, &grown, &[7; 16], None) && !has_room(&world.store, &grown, &[7; 17], None)
    );
    world.close(fork);
    world.close(id);
    assert!(has_room(&world.store, &[], &[7; 96], None) && !has_room(&world.store, &[], &[7; 97], None));
}

/// The nodes of released window blocks stay for later blocks; the whole chain is removed at once.
#[test]
fn a_long_chain_of_names_goes_on_a_small_stack() {
    const BLOCKS: u32 = 12_000;
    let chained = || {
        let spec = spec(&[(16, Some(16), 4)]);
        let options = StoreOptions { cache: true, ..StoreOptions::default() };
        let (mut store, mut arena) = (Store::new(&spec, options), TestArena::new(&spec));
        let id = store.create();
        for block in 0..BLOCKS {
            store.prepare(&mut arena, id, &[block; 16]).unwrap();
            store.publish(id);
            store.evict_window(&mut arena, id, 0);
        }
        store.drop_sequence(&mut arena, id);
        let names = |store: &Store| store.index.trees().map(|(_, tree)| tree.counts().0).sum::<usize>();
        assert_eq!(names(&store), BLOCKS as usize + 1);
        store.trim(&mut arena, 0);
        assert_eq!((names(&store), store.stats().blocks_cached), (0, 0));
    };
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(chained).unwrap();
    thread.join().unwrap();
}

#[test]
fn a_fork_and_its_source_go_their_own_ways() {
    let mut world = world(&spec(&[(16, None, 9), (64, Some(70), 3)]));
    let first = world.filled(&tokens(70));
    let second = world.fork(first);
    assert_eq!(world.store.stats().blocks_shared, 7);
    world.append(second, &[1, 2, 3]);
    world.append(first, &[4]);
    world.remove(first, 10, 30);
    check(&world.store, &world.arena, &world.model);
    world.close(first);
    check(&world.store, &world.arena, &world.model);
    world.truncate(second, 20);
    world.append(second, &tokens(9));
    assert_eq!(world.store.tokens(second)[..53], tokens(53));
}
