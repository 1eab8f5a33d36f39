//! Which blocks are known by which tokens, and which of them are kept without an owner.

use minfer_graph::backend::KvArena;

use super::blocks::Name;
use super::prefix::{NameTree, NodeId, root_words};
use super::store::{Group, Sequence, SequenceId, Store};

/// The names of all blocks: one tree for each block size.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq))]
pub(super) struct Index {
    /// Block sizes, each with its tree.
    trees: Vec<(u32, NameTree)>,
    fingerprint: u64,
}

/// For each tree the node of a sequence's last full block, if it has one.
pub(super) type Tips = Vec<Option<NodeId>>;

impl Index {
    pub(super) fn new(block_sizes: impl Iterator<Item = u32>, fingerprint: u64, name_mask: u64) -> Index {
        let mut sizes: Vec<u32> = block_sizes.collect();
        sizes.sort_unstable();
        sizes.dedup();
        Index { trees: sizes.into_iter().map(|size| (size, NameTree::new(name_mask))).collect(), fingerprint }
    }

    /// The tips of a sequence without full blocks.
    pub(super) fn no_tips(&self) -> Tips {
        vec![None; self.trees.len()]
    }

    /// Block sizes and their trees.
    #[cfg(test)]
    pub(super) fn trees(&self) -> impl Iterator<Item = (u32, &NameTree)> {
        self.trees.iter().map(|(size, tree)| (*size, tree))
    }

    /// What stands at the root of a name.
    pub(super) fn root(&self, salt: Option<u64>) -> [u32; 5] {
        root_words(self.fingerprint, salt)
    }

    /// The names of blocks of one size.
    pub(super) fn tree(&self, block_tokens: u32) -> &NameTree {
        let tree = self.trees.iter().find(|(size, _)| *size == block_tokens);
        &tree.expect("every block size has a tree").1
    }

    pub(super) fn tree_mut(&mut self, block_tokens: u32) -> &mut NameTree {
        let tree = self.trees.iter_mut().find(|(size, _)| *size == block_tokens);
        &mut tree.expect("every block size has a tree").1
    }

    /// Holds the nodes of the last full blocks of `tokens`, making the paths to them where they are not known.
    pub(super) fn hold_path(&mut self, tokens: &[u32], salt: Option<u64>) -> Tips {
        let root = self.root(salt);
        let hold = |(size, tree): &mut (u32, NameTree)| {
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
    pub(super) fn hold(&mut self, tips: &Tips) {
        for ((_, tree), tip) in self.trees.iter_mut().zip(tips) {
            tip.iter().for_each(|&tip| tree.hold(tip));
        }
    }

    /// Moves tips up to those of the first `length` of `held` tokens.
    pub(super) fn cut(&mut self, tips: &mut Tips, held: u32, length: u32) {
        for ((size, tree), tip) in self.trees.iter_mut().zip(tips) {
            let Some(old) = *tip else { continue };
            let steps = held / *size - length / *size;
            let node = (0..steps).fold(old, |node, _| tree.parent(node).expect("a block has a root"));
            *tip = (length >= *size).then_some(node);
            tip.iter().for_each(|&node| tree.hold(node));
            tree.let_go(old);
        }
    }
}

impl Store {
    /// Names the blocks that a sequence has filled since it had `before` tokens.
    pub(super) fn name_filled(&mut self, id: SequenceId, before: u32) {
        let sequence = self.sequences.get_mut(&id).expect("the sequence exists");
        if !self.cache || sequence.shifted {
            return;
        }
        let root = self.index.root(sequence.salt);
        for ((size, tree), tip) in self.index.trees.iter_mut().zip(&mut sequence.tips) {
            let blocks = sequence.tokens.chunks_exact(*size as usize).enumerate();
            for (block_index, ids) in blocks.skip((before / *size) as usize) {
                let parent = tip.unwrap_or_else(|| tree.add(None, &root));
                let node = tree.add(Some(parent), ids);
                tree.hold(node);
                tip.replace(node).into_iter().for_each(|old| tree.let_go(old));
                for (index, group) in self.groups.iter_mut().enumerate() {
                    let block = sequence.tables[index].whole_block(block_index as u32);
                    let block = block.filter(|_| group.block_tokens == *size);
                    if let Some(block) = block.filter(|&block| group.pool.name(block).is_none())
                        && tree.block(node, index).is_none()
                    {
                        tree.attach(node, index, block);
                        group.pool.set_name(block, Name { node, rows: *size });
                    }
                }
            }
        }
    }

    /// Names the blocks that a sequence leaves filled in part, if nobody else fills them and no other block has their rows.
    pub(super) fn name_tails(&mut self, arena: &mut dyn KvArena, id: SequenceId) {
        let Sequence { length, shifted, salt, .. } = *self.settled(id);
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
            if ids.is_empty() || pool.owners(block) > 1 || pool.name(block).is_some() {
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
            let shorter = tree.tails_within(node, group, &ids);
            tree.attach_tail(node, group, block, &ids);
            let pool = &mut self.groups[group].pool;
            pool.set_name(block, Name { node, rows: ids.len() as u32 });
            let cached: Vec<u32> = shorter.into_iter().filter(|&block| pool.owners(block) == 0).collect();
            cached.into_iter().for_each(|block| self.discard(arena, group, block));
        }
    }

    /// The node of a sequence's last full block of this size.
    fn tip(&self, id: SequenceId, size: u32) -> Option<NodeId> {
        let at = self.index.trees.iter().position(|&(other, _)| other == size);
        self.sequence(id).tips[at.expect("every block size has a tree")]
    }

    /// A block's rows are not known any more.
    pub(super) fn forget(&mut self, group: usize, block: u32) {
        let Group { pool, block_tokens, .. } = &mut self.groups[group];
        if let Some(Name { node, .. }) = pool.take_name(block) {
            self.index.tree_mut(*block_tokens).detach(node, group, block);
        }
    }

    /// Gives up a block that only the cache keeps.
    pub(super) fn discard(&mut self, arena: &mut dyn KvArena, group: usize, block: u32) {
        self.forget(group, block);
        self.groups[group].pool.discard(block);
        arena.release(group, block);
    }

    /// Gives up the cached block of a group, or of any, that nobody owned for the longest time. Tells whether there was one.
    pub(super) fn evict(&mut self, arena: &mut dyn KvArena, group: Option<usize>) -> bool {
        let groups = (0..self.groups.len()).filter(|&other| group.is_none_or(|group| group == other));
        let oldest = groups.filter_map(|group| Some((self.groups[group].pool.oldest()?, group))).min();
        if let Some(((_, block), group)) = oldest {
            self.discard(arena, group, block);
            self.counters.evictions += 1;
        }
        oldest.is_some()
    }

    /// Gives up cached blocks, those that nobody owned for the longest time first, until at most `most` are left.
    pub fn trim(&mut self, arena: &mut dyn KvArena, most: u64) {
        while self.groups.iter().map(|group| u64::from(group.pool.cached())).sum::<u64>() > most {
            self.evict(arena, None);
        }
    }
}
