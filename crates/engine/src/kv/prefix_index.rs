//! The prefix index: enters blocks that sequences have filled, and evicts cached ones.

use minfer_graph::backend::KvArena;

use super::blocks::IndexEntry;
use super::prefix::{NodeId, PrefixTree, root_words};
use super::store::{Group, KvSequence, SequenceId, Store};

/// One prefix tree for each block size.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq))]
pub(super) struct PrefixIndex {
    /// Block sizes, each with its tree.
    trees: Vec<(u32, PrefixTree)>,
    fingerprint: u64,
}

/// For each tree the node of a sequence's last full block.
pub(super) type LastNodes = Vec<Option<NodeId>>;

impl PrefixIndex {
    pub(super) fn new(
        block_sizes: impl Iterator<Item = u32>,
        fingerprint: u64,
        hash_mask: u64,
    ) -> PrefixIndex {
        let mut sizes: Vec<u32> = block_sizes.collect();
        sizes.sort_unstable();
        sizes.dedup();
        PrefixIndex {
            trees: sizes.into_iter().map(|size| (size, PrefixTree::new(hash_mask))).collect(),
            fingerprint,
        }
    }

    /// Those of a sequence without full blocks.
    pub(super) fn no_last_nodes(&self) -> LastNodes {
        vec![None; self.trees.len()]
    }

    /// Block sizes and their trees.
    #[cfg(test)]
    pub(super) fn trees(&self) -> impl Iterator<Item = (u32, &PrefixTree)> {
        self.trees.iter().map(|(size, tree)| (*size, tree))
    }

    /// The root of a sequence with this salt.
    pub(super) fn root(&self, salt: Option<u64>) -> [u32; 5] {
        root_words(self.fingerprint, salt)
    }

    /// The tree of a block size.
    pub(super) fn tree(&self, block_tokens: u32) -> &PrefixTree {
        let tree = self.trees.iter().find(|(size, _)| *size == block_tokens);
        &tree.expect("every block size has a tree").1
    }

    pub(super) fn tree_mut(&mut self, block_tokens: u32) -> &mut PrefixTree {
        let tree = self.trees.iter_mut().find(|(size, _)| *size == block_tokens);
        &mut tree.expect("every block size has a tree").1
    }

    /// Holds the nodes of the last full blocks of `tokens`; adds missing ones.
    pub(super) fn hold_path(&mut self, tokens: &[u32], salt: Option<u64>) -> LastNodes {
        let root = self.root(salt);
        let hold = |(size, tree): &mut (u32, PrefixTree)| {
            let blocks = tokens.chunks_exact(*size as usize);
            (blocks.len() > 0).then(|| {
                let start = tree.add(None, &root);
                let tip = blocks.fold(start, |node, ids| tree.add(Some(node), ids));
                tree.hold(tip);
                tip
            })
        };
        self.trees.iter_mut().map(hold).collect()
    }

    /// Holds the nodes that another sequence holds.
    pub(super) fn hold(&mut self, last_nodes: &LastNodes) {
        for ((_, tree), tip) in self.trees.iter_mut().zip(last_nodes) {
            tip.iter().for_each(|&tip| tree.hold(tip));
        }
    }

    /// Moves the nodes up to those of the first `length` of `held` tokens.
    pub(super) fn cut(&mut self, last_nodes: &mut LastNodes, held: u32, length: u32) {
        for ((size, tree), tip) in self.trees.iter_mut().zip(last_nodes) {
            let Some(old) = *tip else { continue };
            let steps = held / *size - length / *size;
            let node = (0..steps).fold(old, |node, _| tree.parent(node).expect("a block has a root"));
            *tip = (length >= *size).then_some(node);
            tip.iter().for_each(|&node| tree.hold(node));
            tree.release(old);
        }
    }
}

impl Store {
    /// Enters the blocks that a sequence has filled since it had `before` tokens.
    pub(super) fn index_full_blocks(&mut self, id: SequenceId, before: u32) {
        let sequence = self.sequences.get_mut(&id).expect("the sequence exists");
        if !self.cache || sequence.shifted {
            return;
        }
        let root = self.index.root(sequence.salt);
        for ((size, tree), tip) in self.index.trees.iter_mut().zip(&mut sequence.last_nodes) {
            let blocks = sequence.tokens.chunks_exact(*size as usize).enumerate();
            for (block_index, ids) in blocks.skip((before / *size) as usize) {
                let parent = tip.unwrap_or_else(|| tree.add(None, &root));
                let node = tree.add(Some(parent), ids);
                tree.hold(node);
                tip.replace(node).into_iter().for_each(|old| tree.release(old));
                for (index, group) in self.groups.iter_mut().enumerate() {
                    let block = sequence.tables[index].whole_block(block_index as u32);
                    let block = block.filter(|_| group.block_tokens == *size);
                    if let Some(block) = block.filter(|&block| group.pool.entry(block).is_none())
                        && tree.block(node, index).is_none()
                    {
                        tree.attach(node, index, block);
                        group.pool.set_entry(block, IndexEntry { node, rows: *size });
                    }
                }
            }
        }
    }

    /// Enters the last, partly filled block of each group, if no other sequence owns it and no
    /// other block has its rows.
    pub(super) fn index_partial_blocks(&mut self, arena: &mut dyn KvArena, id: SequenceId) {
        let KvSequence { length, shifted, salt, .. } = *self.published(id);
        if !self.cache || shifted {
            return;
        }
        let root = self.index.root(salt);
        for group in 0..self.groups.len() {
            let size = self.groups[group].block_tokens;
            let sequence = self.sequence(id);
            let ids = sequence.tokens[(length - length % size) as usize..].to_vec();
            let Some(block) = sequence.tables[group].whole_block(length / size) else { continue };
            let pool = &self.groups[group].pool;
            if ids.is_empty() || pool.owners(block) > 1 || pool.entry(block).is_some() {
                continue;
            }
            let tip = self.tip(id, size);
            let tree = self.index.tree_mut(size);
            let before = tip.or_else(|| tree.find(None, &root));
            let known = before.and_then(|node| tree.partial(node, group, &ids)).map_or(0, |(_, rows)| rows);
            if known == ids.len() as u32 {
                continue;
            }
            let node = before.unwrap_or_else(|| tree.add(None, &root));
            let shorter = tree.partial_blocks_within(node, group, &ids);
            tree.attach_partial(node, group, block, &ids);
            let pool = &mut self.groups[group].pool;
            pool.set_entry(block, IndexEntry { node, rows: ids.len() as u32 });
            let cached: Vec<u32> = shorter.into_iter().filter(|&block| pool.owners(block) == 0).collect();
            cached.into_iter().for_each(|block| self.discard(arena, group, block));
        }
    }

    /// The node of a sequence's last full block of this size.
    fn tip(&self, id: SequenceId, size: u32) -> Option<NodeId> {
        let at = self.index.trees.iter().position(|&(other, _)| other == size);
        self.sequence(id).last_nodes[at.expect("every block size has a tree")]
    }

    /// Removes a block from the index.
    pub(super) fn forget(&mut self, group: usize, block: u32) {
        let Group { pool, block_tokens, .. } = &mut self.groups[group];
        if let Some(IndexEntry { node, .. }) = pool.take_entry(block) {
            self.index.tree_mut(*block_tokens).detach(node, group, block);
        }
    }

    /// Frees a cached block.
    pub(super) fn discard(&mut self, arena: &mut dyn KvArena, group: usize, block: u32) {
        self.forget(group, block);
        self.groups[group].pool.discard(block);
        arena.release(group, block);
    }

    /// Frees the least recently used cached block of a group, or of any. Returns whether there was
    /// one.
    pub(super) fn evict(&mut self, arena: &mut dyn KvArena, group: Option<usize>) -> bool {
        let groups = (0..self.groups.len()).filter(|&other| group.is_none_or(|group| group == other));
        let oldest = groups.filter_map(|group| Some((self.groups[group].pool.oldest()?, group))).min();
        if let Some(((_, block), group)) = oldest {
            self.discard(arena, group, block);
            self.counters.evictions += 1;
        }
        oldest.is_some()
    }

    /// Frees cached blocks, the least recently used first, until at most `most` are left.
    pub fn trim(&mut self, arena: &mut dyn KvArena, most: u64) {
        while self.groups.iter().map(|group| u64::from(group.pool.cached())).sum::<u64>() > most {
            self.evict(arena, None);
        }
    }
}
