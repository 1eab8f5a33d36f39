//! The prefix tree: finds blocks by the tokens whose rows they hold.
//!
//! One tree for each block size. A node stands for one block of tokens after those of its parent; a
//! root stands for what rows depend on besides tokens. Nodes are found by a hash of (parent,
//! tokens) and compared by parent and tokens, so nodes with equal hashes stay distinct. A node
//! lives while a block, a partial block, a child or a sequence refers to it, so the nodes of early
//! blocks that a window has released stay for the later ones.

use std::collections::HashMap;

/// A node of one tree.
pub(super) type NodeId = u32;

/// The prefix tree for blocks of one size.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq))]
pub(super) struct PrefixTree {
    nodes: Vec<Option<Node>>,
    vacant: Vec<NodeId>,
    /// Nodes by hash; several on a collision.
    found: HashMap<u64, Vec<NodeId>>,
    /// Bits of the hash that are used.
    mask: u64,
}

#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq))]
struct Node {
    parent: Option<NodeId>,
    name: u64,
    /// The block's tokens; for a root, what else rows depend on.
    ids: Box<[u32]>,
    children: Vec<NodeId>,
    /// Full blocks of these rows, by group.
    blocks: Vec<(usize, u32)>,
    /// Partly filled blocks that follow this node.
    tails: Vec<Tail>,
    /// Number of sequences whose last full block this is.
    last_nodes: u32,
}

/// A partly filled block that no sequence fills further.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq))]
struct Tail {
    group: usize,
    block: u32,
    ids: Box<[u32]>,
}

impl Node {
    /// Whether a block, a tail, a child or a sequence refers to it.
    fn is_referenced(&self) -> bool {
        self.last_nodes > 0 || !self.children.is_empty() || !self.blocks.is_empty() || !self.tails.is_empty()
    }
}

impl PrefixTree {
    pub(super) fn new(mask: u64) -> PrefixTree {
        PrefixTree { nodes: Vec::new(), vacant: Vec::new(), found: HashMap::new(), mask }
    }

    /// The node of `ids` under `parent`, or a root.
    pub(super) fn find(&self, parent: Option<NodeId>, ids: &[u32]) -> Option<NodeId> {
        let candidates = self.found.get(&self.hash_of(parent, ids))?;
        candidates.iter().copied().find(|&id| {
            let node = self.node(id);
            node.parent == parent && *node.ids == *ids
        })
    }

    /// As [`find`](Self::find); adds the node if it is missing.
    pub(super) fn add(&mut self, parent: Option<NodeId>, ids: &[u32]) -> NodeId {
        if let Some(id) = self.find(parent, ids) {
            return id;
        }
        let name = self.hash_of(parent, ids);
        let (children, blocks, tails) = (Vec::new(), Vec::new(), Vec::new());
        let node = Node { parent, name, ids: ids.into(), children, blocks, tails, last_nodes: 0 };
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.nodes.push(None);
            self.nodes.len() as NodeId - 1
        });
        self.nodes[id as usize] = Some(node);
        self.found.entry(name).or_default().push(id);
        if let Some(parent) = parent {
            self.node_mut(parent).children.push(id);
        }
        id
    }

    pub(super) fn parent(&self, id: NodeId) -> Option<NodeId> {
        self.node(id).parent
    }

    /// One more sequence whose last full block this is.
    pub(super) fn hold(&mut self, id: NodeId) {
        self.node_mut(id).last_nodes += 1;
    }

    /// One sequence less whose last full block this is.
    pub(super) fn release(&mut self, id: NodeId) {
        self.node_mut(id).last_nodes -= 1;
        self.prune(id);
    }

    /// The full block of a node's rows.
    pub(super) fn block(&self, id: NodeId, group: usize) -> Option<u32> {
        self.node(id).blocks.iter().find(|(of, _)| *of == group).map(|&(_, block)| block)
    }

    /// Enters a full block.
    pub(super) fn attach(&mut self, id: NodeId, group: usize, block: u32) {
        self.node_mut(id).blocks.push((group, block));
    }

    /// Enters a partly filled block with the rows of `ids` after a node.
    pub(super) fn attach_partial(&mut self, id: NodeId, group: usize, block: u32, ids: &[u32]) {
        self.node_mut(id).tails.push(Tail { group, block, ids: ids.into() });
    }

    /// Removes a block from a node.
    pub(super) fn detach(&mut self, id: NodeId, group: usize, block: u32) {
        let node = self.node_mut(id);
        node.blocks.retain(|&entry| entry != (group, block));
        node.tails.retain(|tail| (tail.group, tail.block) != (group, block));
        self.prune(id);
    }

    /// A block has moved.
    pub(super) fn rename(&mut self, id: NodeId, group: usize, from: u32, to: u32) {
        let node = self.node_mut(id);
        let full = node.blocks.iter_mut().filter(|(of, _)| *of == group).map(|(_, block)| block);
        let tails = node.tails.iter_mut().filter(|tail| tail.group == group).map(|tail| &mut tail.block);
        full.chain(tails).filter(|block| **block == from).for_each(|block| *block = to);
    }

    /// The block after a node with the longest common prefix with `ids`, and its length.
    pub(super) fn partial(&self, id: NodeId, group: usize, ids: &[u32]) -> Option<(u32, u32)> {
        let node = self.node(id);
        let full = node.children.iter().filter_map(|&child| {
            let block = self.block(child, group)?;
            Some((block, agreeing(&self.node(child).ids, ids)))
        });
        let tails = node.tails.iter().filter(|tail| tail.group == group);
        let tails = tails.map(|tail| (tail.block, agreeing(&tail.ids, ids)));
        full.chain(tails).filter(|&(_, rows)| rows > 0).max_by_key(|&(_, rows)| rows)
    }

    /// The partly filled blocks after a node whose tokens are a prefix of `ids`.
    pub(super) fn partial_blocks_within(&self, id: NodeId, group: usize, ids: &[u32]) -> Vec<u32> {
        let tails = self.node(id).tails.iter();
        let within = tails.filter(|tail| tail.group == group && ids.starts_with(&tail.ids));
        within.map(|tail| tail.block).collect()
    }

    fn hash_of(&self, parent: Option<NodeId>, ids: &[u32]) -> u64 {
        prefix_hash(parent.map_or(0, |parent| self.node(parent).name), ids) & self.mask
    }

    /// Removes a node without references, then each parent whose last reference that was. A loop,
    /// because a long prompt is a chain of thousands of nodes.
    fn prune(&mut self, id: NodeId) {
        let mut next = Some(id);
        while let Some(id) = next.filter(|&id| !self.node(id).is_referenced()) {
            let node = self.nodes[id as usize].take().expect("the node exists");
            self.vacant.push(id);
            let alike = self.found.get_mut(&node.name).expect("the node has a name");
            alike.retain(|&other| other != id);
            if alike.is_empty() {
                self.found.remove(&node.name);
            }
            if let Some(parent) = node.parent {
                self.node_mut(parent).children.retain(|&child| child != id);
            }
            next = node.parent;
        }
    }

    fn node(&self, id: NodeId) -> &Node {
        self.nodes[id as usize].as_ref().expect("the node exists")
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.nodes[id as usize].as_mut().expect("the node exists")
    }
}

/// Length of the common prefix.
pub(super) fn agreeing(one: &[u32], other: &[u32]) -> u32 {
    one.iter().zip(other).take_while(|(one, other)| one == other).count() as u32
}

/// Folds the tokens into the parent's hash with the finaliser of SplitMix64.
fn prefix_hash(parent: u64, ids: &[u32]) -> u64 {
    ids.iter().fold(parent ^ ids.len() as u64, |name, &id| {
        let mut bits = (name ^ u64::from(id)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    })
}

/// The content of a root.
pub(super) fn root_words(fingerprint: u64, salt: Option<u64>) -> [u32; 5] {
    let halves = |word: u64| [word as u32, (word >> 32) as u32];
    let ([low, high], [salt_low, salt_high]) = (halves(fingerprint), halves(salt.unwrap_or(0)));
    [low, high, u32::from(salt.is_some()), salt_low, salt_high]
}

#[cfg(test)]
impl PrefixTree {
    /// How many nodes there are, and how many sequences hold one.
    pub(super) fn counts(&self) -> (usize, u32) {
        let nodes = self.nodes.iter().flatten();
        (nodes.clone().count(), nodes.map(|node| node.last_nodes).sum())
    }

    /// Every name of a block.
    pub(super) fn named(&self) -> Vec<IndexedBlock> {
        let mut named = Vec::new();
        for node in self.nodes.iter().flatten() {
            let mut path: Vec<&[u32]> = Vec::new();
            let mut at = node;
            while let Some(parent) = at.parent {
                path.push(&at.ids);
                at = self.node(parent);
            }
            path.reverse();
            let (root, tokens) = (at.ids.to_vec(), path.concat());
            for &(group, block) in &node.blocks {
                let (root, tokens) = (root.clone(), tokens.clone());
                named.push(IndexedBlock { root, tokens, group, block, rows: node.ids.len() });
            }
            for Tail { group, block, ids } in &node.tails {
                let (root, tokens) = (root.clone(), [&tokens[..], ids].concat());
                named.push(IndexedBlock { root, tokens, group: *group, block: *block, rows: ids.len() });
            }
        }
        named
    }
}

/// A block with the whole of its name.
#[cfg(test)]
pub(super) struct IndexedBlock {
    /// The root's words.
    pub(super) root: Vec<u32>,
    /// The sequence's tokens up to the last row.
    pub(super) tokens: Vec<u32>,
    pub(super) group: usize,
    pub(super) block: u32,
    /// Rows that have the name: those of the last tokens.
    pub(super) rows: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_collide_are_told_apart_by_tokens_and_parents() {
        let mut tree = PrefixTree::new(0);
        let roots = [1, 2].map(|fingerprint| tree.add(None, &root_words(fingerprint, None)));
        let nodes = roots.map(|root| [tree.add(Some(root), &[1, 2]), tree.add(Some(root), &[1, 3])]);
        let [[a, b], [c, d]] = nodes;
        assert!([a, b, c, d].iter().enumerate().all(|(index, id)| ![a, b, c, d][..index].contains(id)));
        assert_eq!(tree.find(Some(roots[1]), &[1, 2]), Some(c));
        assert_eq!(tree.find(Some(a), &[1, 2]), None);
        tree.attach(c, 0, 5);
        assert_eq!((tree.block(a, 0), tree.block(c, 0), tree.block(c, 1)), (None, Some(5), None));
    }

    #[test]
    fn a_name_lives_as_long_as_something_refers_to_it() {
        let mut tree = PrefixTree::new(u64::MAX);
        let root = tree.add(None, &root_words(9, Some(1)));
        let first = tree.add(Some(root), &[1, 2]);
        let second = tree.add(Some(first), &[3, 4]);
        tree.hold(second);
        tree.attach(second, 0, 3);
        tree.attach_partial(first, 0, 8, &[5]);
        tree.release(second);
        assert_eq!(tree.find(Some(first), &[3, 4]), Some(second));
        tree.detach(second, 0, 3);
        assert_eq!(tree.find(Some(first), &[3, 4]), None);
        assert_eq!(tree.counts(), (2, 0));
        tree.detach(first, 0, 8);
        assert_eq!(tree.counts(), (0, 0));
        assert!(tree.found.is_empty());
    }

    #[test]
    fn the_longest_agreement_wins() {
        let mut tree = PrefixTree::new(u64::MAX);
        let root = tree.add(None, &root_words(9, None));
        let full = tree.add(Some(root), &[1, 2, 3, 4]);
        tree.attach(full, 0, 3);
        tree.attach_partial(root, 0, 8, &[1, 2, 9]);
        tree.attach_partial(root, 1, 6, &[1, 2, 9, 9]);
        assert_eq!(tree.partial(root, 0, &[1, 2, 3, 7]), Some((3, 3)));
        assert_eq!(tree.partial(root, 0, &[1, 2, 9, 9]), Some((8, 3)));
        assert_eq!(tree.partial(root, 1, &[1, 2, 9, 9]), Some((6, 4)));
        assert_eq!(tree.partial(root, 0, &[2]), None);
        assert_eq!(tree.partial_blocks_within(root, 0, &[1, 2, 9, 4]), [8]);
        tree.rename(root, 0, 8, 1);
        assert_eq!(tree.partial(root, 0, &[1, 2, 9, 9]), Some((1, 3)));
    }

    #[test]
    fn roots_differ_by_fingerprint_and_salt() {
        let roots = [(1, None), (1, Some(0)), (1, Some(1)), (1 << 32, None)];
        let names = roots.map(|(fingerprint, salt)| prefix_hash(0, &root_words(fingerprint, salt)));
        assert!((1..4).all(|index| !names[..index].contains(&names[index])));
    }
}
