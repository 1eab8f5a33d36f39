//! Bookkeeping of granules: which are in memory, and which of them hold committed blocks.

use std::collections::BTreeSet;
use std::ops::Range;

/// What is known of a block's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not in memory, but for granules that it shares with others.
    Absent,
    /// In memory, and free.
    Warm,
    /// In memory, and in use.
    Committed,
}

/// The blocks of one group and the granules that they touch. Block `b` has the bytes from `b *
/// block_bytes` on.
#[derive(Debug)]
pub(super) struct Granules {
    block_bytes: usize,
    granule: usize,
    states: Vec<State>,
    warm: BTreeSet<usize>,
    committed: usize,
    present: usize,
}

impl Granules {
    /// All of `blocks` absent.
    pub(super) fn new(block_bytes: usize, granule: usize, blocks: usize) -> Granules {
        let states = vec![State::Absent; blocks];
        Granules { block_bytes, granule, states, warm: BTreeSet::new(), committed: 0, present: 0 }
    }

    /// Granules in which committed blocks lie.
    pub(super) fn committed(&self) -> usize {
        self.committed
    }

    /// Granules in memory.
    pub(super) fn present(&self) -> usize {
        self.present
    }

    /// The free block in memory with the highest number.
    pub(super) fn highest_warm(&self) -> Option<usize> {
        self.warm.last().copied()
    }

    /// Granules that committing the block would add to the committed ones.
    pub(super) fn wanted(&self, block: usize) -> usize {
        self.alone(block, |state| state == State::Committed).len()
    }

    /// Counts the block as committed and gives its granules that were not in memory; the caller
    /// brings them there.
    ///
    /// # Panics
    /// It is committed already.
    pub(super) fn commit(&mut self, block: usize) -> Range<usize> {
        let state = self.states[block];
        assert!(state != State::Committed, "block {block} is committed twice");
        let absent = match state {
            State::Warm => 0..0,
            _ => self.alone(block, |state| state != State::Absent),
        };
        self.committed += self.wanted(block);
        self.present += absent.len();
        self.warm.remove(&block);
        self.states[block] = State::Committed;
        absent
    }

    /// The block is free; its granules are still in memory.
    ///
    /// # Panics
    /// It is not committed.
    pub(super) fn release(&mut self, block: usize) {
        assert!(self.states[block] == State::Committed, "block {block} is released but was not committed");
        self.committed -= self.wanted(block);
        self.states[block] = State::Warm;
        self.warm.insert(block);
    }

    /// The granules that no block but this free one keeps in memory.
    pub(super) fn only_of(&self, block: usize) -> Range<usize> {
        self.alone(block, |state| state != State::Absent)
    }

    /// A free block's own granules have left memory.
    pub(super) fn forget(&mut self, block: usize) {
        let freed = self.only_of(block).len();
        let was_warm = self.warm.remove(&block);
        assert!(was_warm, "block {block} is forgotten but was not free in memory");
        self.states[block] = State::Absent;
        self.present -= freed;
    }

    /// The granules that the block touches and no other block does whose state counts. Only its
    /// first and its last can be shared.
    fn alone(&self, block: usize, counts: impl Fn(State) -> bool) -> Range<usize> {
        let (start, end) = (block * self.block_bytes, (block + 1) * self.block_bytes);
        let (mut first, mut last) = (start / self.granule, end.div_ceil(self.granule));
        let shared = |granule: usize| {
            let (start, end) = (granule * self.granule, (granule + 1) * self.granule);
            let blocks = start / self.block_bytes..end.div_ceil(self.block_bytes).min(self.states.len());
            blocks.into_iter().any(|other| other != block && counts(self.states[other]))
        };
        if first < last && shared(first) {
            first += 1;
        }
        if first < last && shared(last - 1) {
            last -= 1;
        }
        first..last
    }
}
