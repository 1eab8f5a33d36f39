//! Demand: how many blocks sequences will take, and whether those are free.

use std::collections::HashMap;

use super::restore::{SequenceLayout, lacking};
use super::store::{Group, SequenceId, Store};
use super::table::Table;

/// Blocks that a context shift may leave partly empty: the last one of the kept tokens, and the
/// first one behind them.
pub const SHIFTED_BLOCKS: u32 = 2;

/// Most blocks of a window group for one sequence whose steps feed at most `step_tokens`: the
/// window and the step, one more block because they need not begin at a block border, and one for a
/// copy on write.
pub fn window_blocks(window: u32, step_tokens: u32, block_tokens: u32) -> u32 {
    window.max(2).saturating_add(step_tokens).div_ceil(block_tokens) + 2
}

/// Blocks of each group that a sequence will take in addition to those that it owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand(Vec<u32>);

/// The blocks of sequences that could be dropped: for each group how many of them own each block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Droppable(Vec<HashMap<u32, u32>>);

impl Store {
    /// Most tokens of one sequence that runs alone.
    pub fn capacity(&self) -> u64 {
        let tokens = |group: &Group| match group.most_held {
            Some(most) if most <= group.pool.total() => u64::MAX,
            _ => u64::from(group.pool.total()) * u64::from(group.block_tokens),
        };
        self.groups.iter().map(tokens).min().unwrap_or(u64::MAX)
    }

    /// Demand of a new sequence of `length` tokens that begins with `tokens`, without the blocks
    /// that it would [reuse](Self::reuse) from sequences that are not `droppable`.
    pub fn demand_of_new(
        &self,
        tokens: &[u32],
        length: u32,
        salt: Option<u64>,
        droppable: &Droppable,
    ) -> Demand {
        let spared = self.spared_blocks(tokens, salt, droppable);
        let groups = self.groups.iter().zip(spared);
        let own = groups.map(|(group, (hidden, owned))| {
            let held = length.div_ceil(group.block_tokens).saturating_sub(hidden);
            held.min(group.most_held(false)).saturating_sub(owned)
        });
        Demand(own.collect())
    }

    /// Demand of a sequence that is cut to its first `kept` tokens, if it has more, and then grows
    /// to `length` tokens.
    pub fn demand_of_growth(&self, id: SequenceId, kept: u32, length: u32) -> Demand {
        let sequence = self.sequence(id);
        let prepared = sequence.tokens.len() as u32;
        let groups = self.groups.iter().zip(&sequence.tables);
        let own = groups.map(|(group, table)| {
            if kept >= prepared {
                let published = prepared == sequence.length;
                return group.growth(table, prepared, length, sequence.shifted, published);
            }
            let mut cut = table.clone();
            let given_up = cut.cut(kept);
            let freed = given_up.iter().filter(|&&block| group.pool.owners(block) == 1).count() as u32;
            group.growth(&cut, kept, length, sequence.shifted, true).saturating_sub(freed)
        });
        Demand(own.collect())
    }

    /// Demand of a sequence that is [restored](Self::restore) and then grows to `length` tokens.
    pub fn demand_of_layout(&self, layout: &SequenceLayout, length: u32) -> Demand {
        let groups = self.groups.iter().zip(&layout.groups);
        let own = groups.map(|(group, runs)| {
            let more = length.saturating_sub(layout.tokens.len() as u32);
            let held: u32 = runs.iter().filter(|run| !run.evicted).map(|run| run.rows).sum();
            let partly = u32::from(runs.iter().any(|run| run.evicted));
            let grown =
                ((held + more).div_ceil(group.block_tokens) + partly).min(group.most_held(layout.shifted));
            grown.max(lacking(runs, group.block_tokens, layout))
        });
        Demand(own.collect())
    }

    /// Whether the demanded blocks are free, cached, or owned by `droppable` sequences only, and
    /// fit the arena's byte limit.
    pub fn has_room(&self, demands: &[Demand], droppable: &Droppable) -> bool {
        let mut bytes = 0u64;
        let blocks_suffice = self.groups.iter().enumerate().all(|(index, group)| {
            let wanted: u64 = demands.iter().map(|demand| u64::from(demand.0[index])).sum();
            let owned = droppable.0[index].iter();
            let freed = owned.filter(|&(&block, &count)| group.pool.owners(block) == count).count() as u64;
            bytes += (u64::from(group.pool.live()) - freed + wanted) * group.block_bytes;
            wanted <= u64::from(group.pool.available()) + freed
        });
        blocks_suffice && self.most_bytes.is_none_or(|most| bytes <= most)
    }

    /// The blocks of sequences that could be dropped, for [`has_room`](Self::has_room).
    pub fn droppable(&self, ids: impl IntoIterator<Item = SequenceId>) -> Droppable {
        let mut owned = vec![HashMap::new(); self.groups.len()];
        for id in ids {
            for (owned, table) in owned.iter_mut().zip(&self.sequence(id).tables) {
                table.blocks().into_iter().for_each(|block| *owned.entry(block).or_insert(0) += 1);
            }
        }
        Droppable(owned)
    }
}

impl Droppable {
    /// How many of the droppable sequences own a block.
    pub(super) fn owners(&self, group: usize, block: u32) -> u32 {
        self.0[group].get(&block).copied().unwrap_or(0)
    }
}

impl Group {
    /// Most blocks of one sequence.
    fn most_held(&self, shifted: bool) -> u32 {
        let shifted = if shifted { SHIFTED_BLOCKS } else { 0 };
        self.most_held.map_or(u32::MAX, |most| most.saturating_add(shifted))
    }

    /// Blocks that a table takes to grow to `length` positions.
    fn growth(&self, table: &Table, held: u32, length: u32, shifted: bool, published: bool) -> u32 {
        let more = length.saturating_sub(held);
        let tail = table.tail(held).filter(|_| more > 0 && published);
        let copied = tail.is_some_and(|(block, _)| self.pool.owners(block) > 1);
        let grown = table.lacks(held, more) + u32::from(copied);
        match self.most_held {
            Some(_) => grown.min(self.most_held(shifted).saturating_sub(table.blocks().len() as u32)),
            None => grown,
        }
    }
}
