//! The block pool of one group: free blocks, cached blocks, and reference counts.

use std::collections::BTreeMap;

use super::prefix::NodeId;

/// The order in which free blocks are allocated. It changes where rows lie and no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BlockOrder {
    /// The lowest free block first, so that memory of high blocks can be released.
    #[default]
    LowestFirst,
    /// A free block drawn from a generator with this seed.
    Shuffled(u64),
}

/// A block's entry in the prefix index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexEntry {
    /// The node of the block if it is full, else of the block before it.
    pub(super) node: NodeId,
    /// Number of its first rows that are indexed.
    pub(super) rows: u32,
}

/// Free list, reference counts and index entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BlockPool {
    owners: Vec<u32>,
    entries: Vec<Option<IndexEntry>>,
    /// When each block last lost its last owner.
    left: Vec<u64>,
    /// Indexed blocks without an owner, by the time when they lost the last one.
    cached: BTreeMap<u64, u32>,
    /// Free blocks as a heap of one order: the next to hand out is last.
    free: Vec<u32>,
    block_order: BlockOrder,
    /// Blocks with more than one owner.
    shared: u32,
    /// All owners of all blocks.
    references: u64,
}

impl BlockPool {
    /// All of `blocks` free.
    pub(super) fn new(blocks: u32, block_order: BlockOrder) -> BlockPool {
        let free = (0..blocks).rev().collect();
        let count = blocks as usize;
        BlockPool {
            owners: vec![0; count],
            entries: vec![None; count],
            left: vec![0; count],
            cached: BTreeMap::new(),
            free,
            block_order,
            shared: 0,
            references: 0,
        }
    }

    pub(super) fn total(&self) -> u32 {
        self.owners.len() as u32
    }

    pub(super) fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// Number of indexed blocks without an owner.
    pub(super) fn cached(&self) -> u32 {
        self.cached.len() as u32
    }

    /// Number of blocks with an owner.
    pub(super) fn live(&self) -> u32 {
        self.total() - self.free() - self.cached()
    }

    /// Number of free and cached blocks.
    pub(super) fn available(&self) -> u32 {
        self.free() + self.cached()
    }

    /// The cached block that lost its last owner first, with when that was.
    pub(super) fn oldest(&self) -> Option<(u64, u32)> {
        self.cached.first_key_value().map(|(&time, &block)| (time, block))
    }

    /// Blocks with more than one owner.
    pub(super) fn shared(&self) -> u32 {
        self.shared
    }

    /// Block table entries: every block as often as it is owned.
    pub(super) fn references(&self) -> u64 {
        self.references
    }

    /// Sequences that own a block.
    pub(super) fn owners(&self, block: u32) -> u32 {
        self.owners[block as usize]
    }

    /// A free block, now with one owner.
    pub(super) fn take(&mut self) -> Option<u32> {
        if let BlockOrder::Shuffled(state) = &mut self.block_order {
            let last = self.free.len().checked_sub(1)?;
            self.free.swap(draw(state, last + 1), last);
        }
        let block = self.free.pop()?;
        self.owners[block as usize] = 1;
        self.references += 1;
        Some(block)
    }

    /// For each block whether it is free.
    pub(super) fn free_blocks(&self) -> Vec<bool> {
        let mut is_free = vec![false; self.owners.len()];
        self.free.iter().for_each(|&block| is_free[block as usize] = true);
        is_free
    }

    pub(super) fn entry(&self, block: u32) -> Option<IndexEntry> {
        self.entries[block as usize]
    }

    pub(super) fn set_entry(&mut self, block: u32, entry: IndexEntry) {
        self.entries[block as usize] = Some(entry);
    }

    pub(super) fn take_entry(&mut self, block: u32) -> Option<IndexEntry> {
        self.entries[block as usize].take()
    }

    /// Moves owners and index entry of block `from` to the free block `to`; `from` is free then.
    pub(super) fn rename(&mut self, from: u32, to: u32) {
        self.free.retain(|&block| block != to);
        self.owners[to as usize] = std::mem::take(&mut self.owners[from as usize]);
        self.entries[to as usize] = self.entries[from as usize].take();
        self.left[to as usize] = self.left[from as usize];
        self.cached.values_mut().filter(|block| **block == from).for_each(|block| *block = to);
        self.free_up(from);
    }

    /// One owner more. A cached block is live again.
    pub(super) fn share(&mut self, block: u32) {
        let owners = &mut self.owners[block as usize];
        *owners += 1;
        self.shared += u32::from(*owners == 2);
        self.references += 1;
        if *owners == 1 {
            self.cached.remove(&self.left[block as usize]);
        }
    }

    /// One owner less. Returns whether the block is free now. An indexed block without an owner is
    /// cached instead, since `time`.
    ///
    /// # Panics
    /// The block has no owner.
    pub(super) fn give(&mut self, block: u32, time: u64) -> bool {
        let owners = &mut self.owners[block as usize];
        assert!(*owners > 0, "KV block {block} is released but has no owner");
        *owners -= 1;
        self.shared -= u32::from(*owners == 1);
        self.references -= 1;
        let (ownerless, named) = (*owners == 0, self.entries[block as usize].is_some());
        if ownerless && named {
            self.left[block as usize] = time;
            self.cached.insert(time, block);
        } else if ownerless {
            self.free_up(block);
        }
        ownerless && !named
    }

    /// Frees a cached block whose index entry was removed.
    pub(super) fn discard(&mut self, block: u32) {
        self.cached.remove(&self.left[block as usize]);
        self.free_up(block);
    }

    /// Puts a block on the free list. With [`BlockOrder::LowestFirst`] the list stays in descending order.
    fn free_up(&mut self, block: u32) {
        let place = match self.block_order {
            BlockOrder::LowestFirst => self.free.partition_point(|&other| other > block),
            BlockOrder::Shuffled(_) => self.free.len(),
        };
        self.free.insert(place, block);
    }
}

#[cfg(test)]
impl BlockPool {
    /// Makes pools equal that differ in nothing but the order in which free blocks are handed out.
    pub(super) fn forget_order(&mut self) {
        self.block_order = BlockOrder::LowestFirst;
        self.free.sort_unstable();
        let names = &self.entries;
        self.left.iter_mut().zip(names).filter(|(_, name)| name.is_none()).for_each(|(left, _)| *left = 0);
    }
}

/// A number below `bound` from SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
/// number generators").
fn draw(state: &mut u64, bound: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (((bits ^ (bits >> 31)) as u128 * bound as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(pool: &mut BlockPool) -> Vec<u32> {
        std::iter::from_fn(|| pool.take()).collect()
    }

    #[test]
    fn fresh_hands_out_the_lowest() {
        let mut pool = BlockPool::new(4, BlockOrder::LowestFirst);
        assert_eq!(drain(&mut pool), [0, 1, 2, 3]);
        for block in [2, 0, 3] {
            assert!(pool.give(block, 0));
        }
        assert_eq!(drain(&mut pool), [0, 2, 3]);
    }

    #[test]
    fn shuffled_hands_out_each_once_in_another_order() {
        let mut pool = BlockPool::new(64, BlockOrder::Shuffled(1));
        let mut order = drain(&mut pool);
        assert!(!order.is_sorted());
        assert_ne!(order, drain(&mut BlockPool::new(64, BlockOrder::Shuffled(2))));
        assert_eq!(order, drain(&mut BlockPool::new(64, BlockOrder::Shuffled(1))));
        order.sort_unstable();
        assert_eq!(order, Vec::from_iter(0..64));
    }

    #[test]
    fn a_shared_block_is_free_after_its_last_owner() {
        let mut pool = BlockPool::new(2, BlockOrder::LowestFirst);
        let block = pool.take().unwrap();
        pool.share(block);
        pool.share(block);
        assert_eq!((pool.owners(block), pool.shared(), pool.references()), (3, 1, 3));
        assert!(!pool.give(block, 0) && !pool.give(block, 0));
        assert_eq!((pool.owners(block), pool.shared(), pool.references()), (1, 0, 1));
        assert!(pool.give(block, 0));
        assert_eq!((pool.free(), pool.references()), (2, 0));
    }

    #[test]
    fn a_named_block_is_cached_after_its_last_owner() {
        let mut pool = BlockPool::new(3, BlockOrder::LowestFirst);
        let blocks = [0; 2].map(|_| pool.take().unwrap());
        for (block, time) in blocks.into_iter().zip([8, 7]) {
            pool.set_entry(block, IndexEntry { node: 0, rows: 16 });
            assert!(!pool.give(block, time));
        }
        assert_eq!((pool.live(), pool.cached(), pool.available(), pool.oldest()), (0, 2, 3, Some((7, 1))));
        pool.share(1);
        pool.rename(0, 2);
        assert_eq!((pool.live(), pool.cached(), pool.oldest()), (1, 1, Some((8, 2))));
        assert!(pool.entry(0).is_none());
        pool.take_entry(2);
        pool.discard(2);
        assert_eq!((pool.live(), pool.free()), (1, 2));
    }

    #[test]
    #[should_panic(expected = "KV block 0 is released but has no owner")]
    fn a_block_is_not_given_back_twice() {
        let mut pool = BlockPool::new(1, BlockOrder::LowestFirst);
        let block = pool.take().unwrap();
        assert!(pool.give(block, 0));
        pool.give(block, 0);
    }
}
