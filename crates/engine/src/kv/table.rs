//! Block tables: where the rows of one sequence lie in one group.

use std::collections::HashSet;
use std::ops::Range;

use minfer_graph::BlockTable;
use minfer_graph::{EVICTED, KvRun};

/// A block table. It owns each block that it names once, however many runs lie in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    block_tokens: u32,
    rows: Entries,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entries {
    /// Entry `p / block_tokens` holds position `p`. The rows of `hole` are released; an entry is
    /// [`EVICTED`] if all of its positions are in the hole.
    Aligned { blocks: Vec<u32>, hole: Range<u32> },
    /// Runs in order, after removals. Runs of one block are adjacent.
    Shifted(Vec<KvRun>),
}

impl Table {
    /// No rows.
    pub(super) fn new(block_tokens: u32) -> Table {
        Table { block_tokens, rows: Entries::Aligned { blocks: Vec::new(), hole: 0..0 } }
    }

    /// A table of these blocks; those whose positions are all in `hole` are [`EVICTED`].
    pub(super) fn aligned(block_tokens: u32, blocks: Vec<u32>, hole: Range<u32>) -> Table {
        Table { block_tokens, rows: Entries::Aligned { blocks, hole } }
    }

    /// A table of these runs.
    pub(super) fn shifted(block_tokens: u32, runs: Vec<KvRun>) -> Table {
        Table { block_tokens, rows: Entries::Shifted(runs) }
    }

    /// As a step reads it.
    pub(super) fn view(&self) -> BlockTable<'_> {
        match &self.rows {
            Entries::Aligned { blocks, .. } => BlockTable::Aligned(blocks),
            Entries::Shifted(runs) => BlockTable::Shifted(runs),
        }
    }

    /// The cell of a position whose row is held.
    pub(super) fn cell(&self, position: u32) -> u32 {
        let place = self.view().place(position, self.block_tokens);
        place.expect("the position has a cell").cell(self.block_tokens)
    }

    /// The blocks that it owns, in order, each once.
    pub(super) fn blocks(&self) -> Vec<u32> {
        let mut blocks: Vec<u32> = match &self.rows {
            Entries::Aligned { blocks, .. } => blocks.clone(),
            Entries::Shifted(runs) => runs.iter().map(|run| run.block).collect(),
        };
        blocks.retain(|&block| block != EVICTED);
        blocks.dedup();
        blocks
    }

    /// The block of an aligned table that holds the positions from `index` blocks on, if all of its
    /// rows are where they belong.
    pub(super) fn whole_block(&self, index: u32) -> Option<u32> {
        let Entries::Aligned { blocks, hole } = &self.rows else { return None };
        let (start, end) = (index * self.block_tokens, (index + 1) * self.block_tokens);
        let intact = hole.is_empty() || hole.end <= start || end <= hole.start;
        blocks.get(index as usize).copied().filter(|_| intact)
    }

    /// Every position below `length` in order; released ones as runs of block [`EVICTED`].
    pub(super) fn runs(&self, length: u32) -> Vec<KvRun> {
        let mut runs = Vec::new();
        match &self.rows {
            Entries::Aligned { blocks, hole } => {
                for (index, &block) in blocks.iter().enumerate() {
                    let first = (index as u32 * self.block_tokens).min(length);
                    let last = (first + self.block_tokens).min(length);
                    let (from, to) = (hole.start.clamp(first, last), hole.end.clamp(first, last));
                    for (range, block) in [(first..from, block), (from..to, EVICTED), (to..last, block)] {
                        let offset = if block == EVICTED { 0 } else { range.start - first };
                        let rows = range.end.saturating_sub(range.start);
                        push(&mut runs, KvRun { start: range.start, rows, block, offset, rope_offset: 0 });
                    }
                }
            }
            Entries::Shifted(old) => {
                for run in old {
                    let rows = length.min(run.end()).saturating_sub(run.start);
                    push(&mut runs, KvRun { rows, ..*run });
                }
            }
        }
        runs
    }

    /// The first position of a range whose row was released.
    pub(super) fn missing(&self, range: Range<u32>) -> Option<u32> {
        let first = |hole: Range<u32>| {
            let from = hole.start.max(range.start);
            (from < hole.end.min(range.end)).then_some(from)
        };
        match &self.rows {
            Entries::Aligned { hole, .. } => first(hole.clone()),
            Entries::Shifted(runs) => {
                let evicted = runs.iter().filter(|run| run.block == EVICTED);
                evicted.filter_map(|run| first(run.start..run.end())).next()
            }
        }
    }

    /// Block and offset of the next row, if the last block has room.
    pub(super) fn tail(&self, length: u32) -> Option<(u32, u32)> {
        match &self.rows {
            Entries::Aligned { blocks, .. } => {
                let offset = length % self.block_tokens;
                (offset > 0).then(|| (blocks[(length / self.block_tokens) as usize], offset))
            }
            Entries::Shifted(runs) => {
                let last = runs.last().filter(|run| run.block != EVICTED)?;
                let offset = last.offset + last.rows;
                (offset < self.block_tokens).then_some((last.block, offset))
            }
        }
    }

    /// Blocks that `tokens` more positions after `length` take beyond the room in the last block.
    pub(super) fn lacks(&self, length: u32, tokens: u32) -> u32 {
        let room = self.tail(length).map_or(0, |(_, offset)| self.block_tokens - offset);
        tokens.saturating_sub(room).div_ceil(self.block_tokens)
    }

    /// Adds `tokens` more positions after `length`, in the last block and then in `fresh` blocks.
    pub(super) fn extend(&mut self, length: u32, tokens: u32, fresh: &[u32]) {
        let tail = self.tail(length);
        let block_tokens = self.block_tokens;
        match &mut self.rows {
            Entries::Aligned { blocks, .. } => blocks.extend_from_slice(fresh),
            Entries::Shifted(runs) => {
                let mut start = length;
                let places = tail.into_iter().chain(fresh.iter().map(|&block| (block, 0)));
                for (block, offset) in places {
                    let rows = (length + tokens - start).min(block_tokens - offset);
                    push(runs, KvRun { start, rows, block, offset, rope_offset: 0 });
                    start += rows;
                }
            }
        }
    }

    /// Replaces a block by another.
    pub(super) fn replace(&mut self, old: u32, new: u32) {
        match &mut self.rows {
            Entries::Aligned { blocks, .. } => {
                blocks.iter_mut().filter(|block| **block == old).for_each(|block| *block = new);
            }
            Entries::Shifted(runs) => {
                runs.iter_mut().filter(|run| run.block == old).for_each(|run| run.block = new);
            }
        }
    }

    /// Drops the positions from `length` on. Returns the blocks that it no longer owns, the last
    /// first.
    pub(super) fn cut(&mut self, length: u32) -> Vec<u32> {
        let old = self.blocks();
        match &mut self.rows {
            _ if length == 0 => *self = Table::new(self.block_tokens),
            Entries::Aligned { blocks, hole } => {
                blocks.truncate(length.div_ceil(self.block_tokens) as usize);
                *hole = hole.start.min(length)..hole.end.min(length);
            }
            Entries::Shifted(_) => self.rows = Entries::Shifted(self.runs(length)),
        }
        self.given_up(&old)
    }

    /// Removes a range of `length` positions: later positions move down, their rows stay. Returns
    /// the blocks that it no longer owns, the last first.
    pub(super) fn remove(&mut self, range: &Range<u32>, length: u32) -> Vec<u32> {
        let old = self.blocks();
        let removed = range.end - range.start;
        let mut runs = Vec::new();
        for run in self.runs(length) {
            let below = run.end().min(range.start).saturating_sub(run.start);
            push(&mut runs, KvRun { rows: below, ..run });
            let skipped = range.end.clamp(run.start, run.end()) - run.start;
            let rows = run.rows - skipped;
            if rows > 0 {
                let start = run.start + skipped - removed;
                let (offset, rope_offset) = match run.block {
                    EVICTED => (0, 0),
                    _ => (run.offset + skipped, run.rope_offset + removed),
                };
                push(&mut runs, KvRun { start, rows, block: run.block, offset, rope_offset });
            }
        }
        self.rows = Entries::Shifted(runs);
        self.given_up(&old)
    }

    /// Releases the blocks whose positions all lie in `range`. Returns them, the last first.
    pub(super) fn evict(&mut self, range: Range<u32>, length: u32) -> Vec<u32> {
        if !self.reaches_into(&range) {
            return Vec::new();
        }
        let old = self.blocks();
        let block_tokens = self.block_tokens;
        match &mut self.rows {
            Entries::Aligned { blocks, hole } => {
                // There is one hole: it only grows.
                let whole = hole.start == hole.end;
                let start = if whole { range.start } else { range.start.min(hole.start) };
                let (first, last) = (start.div_ceil(block_tokens), range.end / block_tokens);
                if first < last {
                    blocks[first as usize..last as usize].fill(EVICTED);
                    let (start, end) = (first * block_tokens, last * block_tokens);
                    *hole = if whole { start..end } else { hole.start.min(start)..hole.end.max(end) };
                }
            }
            Entries::Shifted(runs) => {
                let outside = |run: &&KvRun| run.start < range.start || run.end() > range.end;
                let kept: HashSet<u32> = runs.iter().filter(outside).map(|run| run.block).collect();
                for run in runs.iter_mut().filter(|run| !kept.contains(&run.block)) {
                    *run = KvRun { block: EVICTED, offset: 0, rope_offset: 0, ..*run };
                }
                self.rows = Entries::Shifted(self.runs(length));
            }
        }
        self.given_up(&old)
    }

    /// Whether it may own blocks in `range`. A quick test, because it runs at every step and is
    /// mostly false.
    fn reaches_into(&self, range: &Range<u32>) -> bool {
        match &self.rows {
            Entries::Aligned { hole, .. } => {
                let first = range.start.next_multiple_of(self.block_tokens);
                range.end / self.block_tokens > hole.end / self.block_tokens || first < hole.start
            }
            Entries::Shifted(runs) => {
                let first = runs.partition_point(|run| run.end() <= range.start);
                runs[first..].iter().take_while(|run| run.start < range.end).any(|run| run.block != EVICTED)
            }
        }
    }

    /// The `old` blocks that it no longer owns, the last first.
    fn given_up(&self, old: &[u32]) -> Vec<u32> {
        let mut held = self.blocks();
        held.sort_unstable();
        old.iter().rev().filter(|block| held.binary_search(block).is_err()).copied().collect()
    }
}

/// Adds a run; merges it with the previous one if they are contiguous.
pub(super) fn push(runs: &mut Vec<KvRun>, run: KvRun) {
    if run.rows == 0 {
        return;
    }
    if let Some(last) = runs.last_mut() {
        let follows = last.offset + last.rows == run.offset && last.rope_offset == run.rope_offset;
        if last.block == run.block && (run.block == EVICTED || follows) {
            last.rows += run.rows;
            return;
        }
    }
    runs.push(run);
}
