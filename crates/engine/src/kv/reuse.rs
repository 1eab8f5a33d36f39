//! Prefix reuse: starts a sequence with the rows of an equal prefix.

use minfer_graph::EVICTED;
use minfer_graph::backend::KvArena;

use super::demand::Droppable;
use super::prefix::agreeing;
use super::store::{Group, KvSequence, SequenceId, Store};
use super::table::Table;
use super::window::first_seen;

/// A block whose first rows match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Match {
    block: u32,
    rows: u32,
}

/// The prefix that can be reused.
struct Reusable {
    tokens: u32,
    /// For each group the blocks without rows that a window hides, then those to own, in order.
    groups: Vec<(u32, Vec<Match>)>,
}

impl Store {
    /// Gives an empty sequence the rows of the longest known prefix of `tokens`, without the last
    /// one, and returns its length. Rows match by tokens, the store's fingerprint and `salt`.
    /// Blocks are shared, not copied; a partly used block is copied when the sequence first writes
    /// to it.
    ///
    /// # Panics
    /// The sequence does not exist or has tokens.
    pub fn reuse(&mut self, id: SequenceId, tokens: &[u32], salt: Option<u64>) -> u32 {
        let length = self.share(id, tokens, tokens.len().saturating_sub(1), salt);
        if length > 0 {
            self.counters.hits += 1;
            self.counters.tokens_reused += u64::from(length);
        }
        length
    }

    /// A sequence with the rows of the longest known prefix of `tokens`, all of them at most. It
    /// keeps them where they are until it is dropped.
    pub fn pin(&mut self, tokens: &[u32], salt: Option<u64>) -> SequenceId {
        let id = self.create();
        self.share(id, tokens, tokens.len(), salt);
        id
    }

    fn share(&mut self, id: SequenceId, tokens: &[u32], most: usize, salt: Option<u64>) -> u32 {
        let sequence = self.published_mut(id);
        assert_eq!(sequence.length, 0, "KV sequence {} has tokens", id.number());
        sequence.salt = salt;
        let Some(reusable) = self.find_reusable(tokens, most, salt) else { return 0 };
        let length = reusable.tokens;
        let last_nodes = self.index.hold_path(&tokens[..length as usize], salt);
        let mut tables = Vec::new();
        for (group, (hidden, matches)) in self.groups.iter_mut().zip(reusable.groups) {
            let mut blocks = vec![EVICTED; hidden as usize];
            for found in matches {
                group.pool.share(found.block);
                blocks.push(found.block);
            }
            tables.push(Table::aligned(group.block_tokens, blocks, 0..hidden * group.block_tokens));
        }
        let tokens = tokens[..length as usize].to_vec();
        *self.sequence_mut(id) = KvSequence { tokens, length, shifted: false, salt, tables, last_nodes };
        length
    }

    /// How many tokens [`reuse`](Self::reuse) would take now.
    pub fn reusable(&self, tokens: &[u32], salt: Option<u64>) -> u32 {
        let most = tokens.len().saturating_sub(1);
        self.find_reusable(tokens, most, salt).map_or(0, |reusable| reusable.tokens)
    }

    /// Frees the cached blocks that hold rows of `tokens` from index `from` on and that no sequence
    /// owns. Returns how many.
    pub fn forget_prefix(
        &mut self,
        arena: &mut dyn KvArena,
        tokens: &[u32],
        from: u32,
        salt: Option<u64>,
    ) -> u32 {
        let mut forgotten = 0;
        for group in 0..self.groups.len() {
            let size = self.groups[group].block_tokens;
            let tree = self.index.tree(size);
            let (mut node, mut blocks) = (tree.find(None, &self.index.root(salt)), Vec::new());
            for (index, ids) in (0u32..).zip(tokens.chunks(size as usize)) {
                let Some(parent) = node else { break };
                if (index + 1) * size > from {
                    blocks.extend(tree.partial_blocks_within(parent, group, ids));
                }
                node = tree.find(Some(parent), ids);
                let full = node.and_then(|node| tree.block(node, group));
                blocks.extend(full.filter(|_| index * size >= from));
            }
            let pool = &self.groups[group].pool;
            blocks.retain(|&block| pool.owners(block) == 0);
            forgotten += blocks.len() as u32;
            blocks.into_iter().for_each(|block| self.discard(arena, group, block));
        }
        forgotten
    }

    /// For each group the blocks that a window hides from a new sequence of these tokens, and those
    /// that it would share with sequences that are not `droppable`.
    pub(super) fn spared_blocks(
        &self,
        tokens: &[u32],
        salt: Option<u64>,
        droppable: &Droppable,
    ) -> Vec<(u32, u32)> {
        let most = tokens.len().saturating_sub(1);
        let Some(reusable) = self.find_reusable(tokens, most, salt) else {
            return vec![(0, 0); self.groups.len()];
        };
        let groups = self.groups.iter().zip(&reusable.groups).enumerate();
        let spared = groups.map(|(index, (group, (hidden, matches)))| {
            let whole = (reusable.tokens / group.block_tokens - hidden) as usize;
            let owned =
                |found: &&Match| group.pool.owners(found.block) > droppable.owners(index, found.block);
            (*hidden, matches[..whole].iter().filter(owned).count() as u32)
        });
        spared.collect()
    }

    fn find_reusable(&self, tokens: &[u32], most: usize, salt: Option<u64>) -> Option<Reusable> {
        if !self.cache || self.groups.is_empty() {
            return None;
        }
        let known: Vec<Vec<Match>> =
            (0..self.groups.len()).map(|group| self.known(group, tokens, salt)).collect();
        let mut length = most as u32;
        loop {
            let groups = self.groups.iter().zip(&known);
            let reach = groups.map(|(group, known)| reach(group, known, length)).min()?;
            if reach == length {
                break;
            }
            length = reach;
        }
        let groups = self.groups.iter().zip(known).map(|(group, mut known)| {
            let hidden = first_seen(group.window, length) / group.block_tokens;
            known.truncate(length.div_ceil(group.block_tokens) as usize);
            (hidden, known.split_off(hidden as usize))
        });
        (length > 0).then(|| Reusable { tokens: length, groups: groups.collect() })
    }

    /// For each block of `tokens` in order the block with most of its rows, up to the first unknown
    /// one.
    fn known(&self, group: usize, tokens: &[u32], salt: Option<u64>) -> Vec<Match> {
        let block_tokens = self.groups[group].block_tokens;
        let tree = self.index.tree(block_tokens);
        let donors = self.donors(tokens, salt);
        let longest = donors.iter().map(|&(_, common)| common).max().unwrap_or(0);
        let mut parent = tree.find(None, &self.index.root(salt));
        let mut known = Vec::new();
        for (index, ids) in tokens.chunks(block_tokens as usize).enumerate() {
            let start = index as u32 * block_tokens;
            if parent.is_none() && longest <= start {
                break;
            }
            let before = parent;
            parent = before.and_then(|before| tree.find(Some(before), ids));
            let full = parent.and_then(|node| tree.block(node, group));
            known.push(match full {
                Some(block) => Match { block, rows: block_tokens },
                None => {
                    let found = before.and_then(|before| tree.partial(before, group, ids));
                    let found = found.map_or(Match::default(), |(block, rows)| Match { block, rows });
                    best_donor(group, &donors, start, block_tokens, found)
                }
            });
        }
        known
    }

    /// Sequences with a common prefix with `tokens`, and its length.
    fn donors(&self, tokens: &[u32], salt: Option<u64>) -> Vec<(&KvSequence, u32)> {
        let alike = self.sequences.values().filter(|sequence| {
            !sequence.shifted && sequence.salt == salt && sequence.tokens.len() == sequence.length as usize
        });
        let common = alike.map(|sequence| (sequence, agreeing(&sequence.tokens, tokens)));
        common.filter(|&(_, common)| common > 0).collect()
    }
}

/// The block at `start` of the sequence that has most rows of it in common, if those are more than
/// `best` has.
fn best_donor(
    group: usize,
    donors: &[(&KvSequence, u32)],
    start: u32,
    block_tokens: u32,
    best: Match,
) -> Match {
    donors.iter().fold(best, |best, &(sequence, common)| {
        let rows = common.saturating_sub(start).min(block_tokens);
        let block = sequence.tables[group].whole_block(start / block_tokens);
        block.filter(|_| rows > best.rows).map_or(best, |block| Match { block, rows })
    })
}

/// The longest length up to `length` of which a group has every row that the next token sees.
fn reach(group: &Group, known: &[Match], mut length: u32) -> u32 {
    let block_tokens = group.block_tokens;
    while length > 0 {
        let needed = first_seen(group.window, length) / block_tokens..length.div_ceil(block_tokens);
        let rows = |index: u32| known.get(index as usize).map_or(0, |found| found.rows);
        let gap = needed.rev().find(|&index| rows(index) < (length - index * block_tokens).min(block_tokens));
        let Some(index) = gap else { break };
        length = index * block_tokens + rows(index);
    }
    length
}
