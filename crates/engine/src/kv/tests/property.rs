//! Random operations on small geometries, each against the model and under every fault.

use std::cell::{Cell, RefCell};

use minfer_graph::KvSpec;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::arena::spec;
use super::check::check;
use super::world::World;
use crate::kv::{BlockOrder, KvStats, StoreOptions};

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
    (verb, 0..6usize, prop::bool::weighted(0.12)).prop_map(|(verb, sequence, faults)| Operation {
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

impl World {
    fn apply(&mut self, Operation { verb, sequence, faults }: Operation) {
        if let Verb::Open { tokens, salt } = verb {
            if self.model.len() < 6 {
                self.open(&tokens.behind(0), salt);
            }
            return;
        }
        let Some(id) = self.model.keys().nth(sequence).copied() else { return };
        let published = self.model[&id].prepared.is_empty();
        match verb {
            Verb::Open { .. } => (),
            Verb::Feed(tokens) if published => {
                self.feed(id, &tokens.behind(self.model[&id].length()), faults)
            }
            Verb::Publish => self.publish(id),
            Verb::Undo => self.undo(id),
            Verb::Truncate { short_of } if published => self.truncate(id, short_of),
            Verb::Remove { from, count } if published => self.remove(id, from, count),
            Verb::Fork if published && self.model.len() < 6 => {
                self.fork(id);
            }
            Verb::Evict { anchors } if published => self.evict(id, anchors),
            Verb::Restore { swapped } if published && self.model.len() < 6 => {
                self.restore(id, swapped, faults)
            }
            Verb::Compact { most } if self.model.values().all(|rows| rows.prepared.is_empty()) => {
                self.compact(most, faults);
            }
            Verb::Trim { most } => {
                self.store.trim(&mut self.arena, most);
                assert!(self.store.stats().blocks_cached <= most);
            }
            Verb::Drop => self.close(id),
            _ => (),
        }
    }
}

#[test]
fn agrees_with_a_naive_model() {
    let done = Cell::new(0u64);
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
        let block_order = shuffle.map_or(BlockOrder::LowestFirst, BlockOrder::Shuffled);
        let options = StoreOptions { block_order, cache, fingerprint: 5, ..StoreOptions::default() };
        let mut world = World::new(&spec, options, if collide { 1 } else { u64::MAX });
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
