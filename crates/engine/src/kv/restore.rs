//! Cells for rows that come from a session file or from host memory.

use std::ops::Range;

use minfer_graph::backend::KvArena;
use minfer_graph::{EVICTED, KvRun};

use super::error::StoreError;
use super::store::{KvSequence, SequenceId, Store};
use super::table::{Table, push};
use super::window::first_seen;

/// A sequence without its rows: enough for a store of any block size to allocate its cells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SequenceLayout {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// Tokens were removed from within.
    pub shifted: bool,
    /// For each group runs that cover every position once, in order.
    pub groups: Vec<Vec<LayoutRun>>,
}

/// Neighbouring positions whose rows were rotated alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LayoutRun {
    /// Positions.
    pub rows: u32,
    /// The rows were rotated at their position plus this.
    pub rope_offset: u32,
    /// A window has released the rows.
    pub evicted: bool,
}

impl Store {
    /// What [`restore`](Self::restore) needs to know about a sequence.
    ///
    /// # Panics
    /// The sequence does not exist or has cells that are not published.
    pub fn layout(&self, id: SequenceId) -> SequenceLayout {
        let sequence = self.published(id);
        let groups = sequence.tables.iter().map(|table| layout_runs(table.runs(sequence.length)));
        SequenceLayout {
            tokens: sequence.tokens.clone(),
            shifted: sequence.shifted,
            groups: groups.collect(),
        }
    }

    /// A sequence with cells for all tokens of `layout`. The caller writes its rows
    /// ([`rows`](Self::rows) says where), then [`publish`](Self::publish)es it, or drops it where
    /// that fails.
    ///
    /// # Errors
    /// The layout is not one of a sequence of this store, too few blocks are free or cached, or the
    /// arena refused memory.
    pub fn restore(
        &mut self,
        arena: &mut dyn KvArena,
        layout: SequenceLayout,
        salt: Option<u64>,
    ) -> Result<SequenceId, StoreError> {
        self.check_layout(&layout)?;
        let groups = self.groups.iter().zip(&layout.groups);
        let wanted: Vec<u32> =
            groups.map(|(group, runs)| lacking(runs, group.block_tokens, &layout)).collect();
        let length = layout.tokens.len() as u32;
        let taken = self.take(arena, self.next_id, (0, length), &wanted)?;
        let groups = self.groups.iter().zip(&layout.groups).zip(taken);
        let tables = groups.map(|((group, runs), blocks)| match layout.shifted {
            true => packed(runs, group.block_tokens, blocks),
            false => aligned(runs, group.block_tokens, blocks),
        });
        let tables = tables.collect();
        let SequenceLayout { tokens, shifted, .. } = layout;
        let last_nodes = self.index.no_last_nodes();
        Ok(self.insert(KvSequence { tokens, length: 0, shifted, salt, tables, last_nodes }))
    }

    fn check_layout(&self, layout: &SequenceLayout) -> Result<(), StoreError> {
        let bad = |reason: String| Err(StoreError::BadLayout(reason));
        let (found, groups) = (layout.groups.len(), self.groups.len());
        if found != groups {
            return bad(format!("{found} groups of layers instead of {groups}"));
        }
        let length = layout.tokens.len() as u64;
        for (index, (group, runs)) in self.groups.iter().zip(&layout.groups).enumerate() {
            let covered: u64 = runs.iter().map(|run| u64::from(run.rows)).sum();
            if covered != length || length > u64::from(u32::MAX / 2) {
                return bad(format!("group {index} has rows of {covered} positions for {length} tokens"));
            }
            if !layout.shifted && (runs.iter().any(|run| run.rope_offset > 0) || holes(runs).len() > 1) {
                return bad(format!("group {index} has rows of a shifted sequence"));
            }
            let seen = first_seen(group.window, length as u32);
            if let Some(hole) = holes(runs).iter().find(|hole| hole.end > seen) {
                let position = hole.start.max(seen);
                return bad(format!("group {index} lacks position {position}, which the next token sees"));
            }
        }
        let runs = layout.groups.iter().flatten().filter(|run| !run.evicted);
        self.check_offsets(runs.map(|run| run.rope_offset))
    }
}

/// The runs of a layout that say what a table's runs do.
fn layout_runs(runs: Vec<KvRun>) -> Vec<LayoutRun> {
    let mut layout: Vec<LayoutRun> = Vec::new();
    for run in runs {
        let (evicted, rope_offset) = (run.block == EVICTED, run.rope_offset);
        match layout.last_mut() {
            Some(last) if (last.evicted, last.rope_offset) == (evicted, rope_offset) => last.rows += run.rows,
            _ => layout.push(LayoutRun { rows: run.rows, rope_offset, evicted }),
        }
    }
    layout
}

/// The positions without rows, neighbours joined.
pub(super) fn holes(runs: &[LayoutRun]) -> Vec<Range<u32>> {
    let mut holes: Vec<Range<u32>> = Vec::new();
    let mut start = 0;
    for run in runs.iter().filter(|run| run.rows > 0) {
        let end = start + run.rows;
        match holes.last_mut() {
            _ if !run.evicted => (),
            Some(last) if last.end == start => last.end = end,
            _ => holes.push(start..end),
        }
        start = end;
    }
    holes
}

/// Blocks that a layout's rows take.
pub(super) fn lacking(runs: &[LayoutRun], block_tokens: u32, layout: &SequenceLayout) -> u32 {
    match layout.shifted {
        true => {
            let rows: u32 = runs.iter().filter(|run| !run.evicted).map(|run| run.rows).sum();
            rows.div_ceil(block_tokens)
        }
        false => {
            let blocks = (layout.tokens.len() as u32).div_ceil(block_tokens);
            blocks - holes(runs).iter().map(|hole| inside(hole, block_tokens).len() as u32).sum::<u32>()
        }
    }
}

/// The blocks whose positions all lie in a hole.
fn inside(hole: &Range<u32>, block_tokens: u32) -> Range<u32> {
    let (first, last) = (hole.start.div_ceil(block_tokens), hole.end / block_tokens);
    first..last.max(first)
}

/// Rows at their positions' own offsets.
fn aligned(runs: &[LayoutRun], block_tokens: u32, blocks: Vec<u32>) -> Table {
    let hole = holes(runs).pop().unwrap_or(0..0);
    let gap = inside(&hole, block_tokens);
    let mut entries = blocks;
    entries.splice(gap.start as usize..gap.start as usize, gap.map(|_| EVICTED));
    Table::aligned(block_tokens, entries, hole)
}

/// Rows one behind the other, no room between them.
fn packed(runs: &[LayoutRun], block_tokens: u32, blocks: Vec<u32>) -> Table {
    let (mut packed, mut start, mut filled) = (Vec::new(), 0, 0);
    for run in runs {
        let mut left = run.rows;
        while left > 0 {
            let rope_offset = run.rope_offset;
            let next = match run.evicted {
                true => KvRun { start, rows: left, block: EVICTED, offset: 0, rope_offset: 0 },
                false => {
                    let offset = filled % block_tokens;
                    let block = blocks[(filled / block_tokens) as usize];
                    KvRun { start, rows: left.min(block_tokens - offset), block, offset, rope_offset }
                }
            };
            filled += if run.evicted { 0 } else { next.rows };
            start += next.rows;
            left -= next.rows;
            push(&mut packed, next);
        }
    }
    Table::shifted(block_tokens, packed)
}
