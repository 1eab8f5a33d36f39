//! Splits the attention of a batch into items that workers claim.

use std::cmp::Reverse;
use std::ops::Range;

use minfer_graph::{AttentionSpec, Batch, Mask};

use super::{AttentionArgs, SPAN, TILE, visible};
use crate::arch::LANES;

/// Query rows times heads that share a loaded tile of K and V.
pub(super) const SHARED_ROWS: usize = 48;
/// Fewest of them worth an item of their own.
const FEWEST_ROWS: usize = 12;

/// What of an operation decides its items. Layers with equal shapes can share a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct PlanShape {
    heads: usize,
    kv_heads: usize,
    v_dim: usize,
    mask: Mask,
}

impl From<&AttentionSpec> for PlanShape {
    fn from(spec: &AttentionSpec) -> PlanShape {
        PlanShape {
            heads: spec.heads as usize,
            kv_heads: spec.kv_heads as usize,
            v_dim: spec.v_dim as usize,
            mask: spec.mask,
        }
    }
}

/// Neighbouring rows of one sequence, and some query heads of one KV head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    /// Index of the sequence.
    pub(super) sequence: usize,
    /// Rows of the batch.
    pub(super) rows: Range<usize>,
    /// The KV head.
    pub(super) kv_head: usize,
    /// Query heads.
    pub(super) heads: Range<usize>,
}

impl Block {
    /// Rows times heads.
    pub(super) fn virtual_rows(&self) -> usize {
        self.rows.len() * self.heads.len()
    }
}

/// A block over a run of spans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    /// The queries.
    pub(super) block: Block,
    /// Spans of the sequence.
    pub(super) spans: Range<usize>,
    /// Where the state after the item's only span goes; without it the item covers all spans and
    /// writes the result.
    pub(super) partial: Option<usize>,
    cost: usize,
}

/// The partial states of a block, to be folded into its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fold {
    /// The queries.
    pub(super) block: Block,
    /// Spans of the sequence.
    pub(super) spans: Range<usize>,
    /// Where the state of the first span is; the others follow.
    pub(super) partial: usize,
}

/// The items of one step's attention. It decides who computes what and never what comes out. Reused
/// from step to step, it allocates only while it grows.
#[derive(Debug, Default)]
pub(crate) struct AttentionPlan {
    items: Vec<Item>,
    folds: Vec<Fold>,
    partial_floats: usize,
}

impl AttentionPlan {
    /// Plans a step for a number of workers. Blocks of few queries over several spans are split by
    /// span while their states fit into `partial_capacity` floats.
    pub(crate) fn rebuild(
        &mut self,
        shape: &PlanShape,
        batch: &Batch<'_>,
        workers: usize,
        partial_capacity: usize,
    ) {
        self.items.clear();
        self.folds.clear();
        self.partial_floats = 0;
        let group = shape.heads / shape.kv_heads;
        let rows = rows_per_block(shape, batch.positions.len(), workers);
        let blocks: usize = batch.sequences.iter().map(|sequence| sequence.rows.len().div_ceil(rows)).sum();
        let parts = workers.div_ceil((blocks * shape.kv_heads).max(1)).min(group);
        for (index, sequence) in batch.sequences.iter().enumerate() {
            for start in (sequence.rows.start as usize..sequence.rows.end as usize).step_by(rows) {
                let end = (start + rows).min(sequence.rows.end as usize);
                for part in 0..shape.kv_heads * parts {
                    let (kv_head, part) = (part / parts, part % parts);
                    let heads =
                        kv_head * group + group * part / parts..kv_head * group + group * (part + 1) / parts;
                    let block = Block { sequence: index, rows: start..end, kv_head, heads };
                    let split = workers > 1 && sequence.rows.len() <= rows;
                    self.add(shape, batch, block, if split { partial_capacity } else { 0 });
                }
            }
        }
        self.items.sort_unstable_by_key(Item::order);
    }

    /// Floats of partial states.
    #[cfg(test)]
    pub(crate) fn partial_floats(&self) -> usize {
        self.partial_floats
    }

    /// Whether the items cost about the same, so that they need not be claimed one by one.
    pub(super) fn is_even(&self) -> bool {
        // The first one has the largest cost, to a factor of two.
        let least = self.items.iter().map(|item| item.cost).min();
        self.items.first().zip(least).is_some_and(|(first, least)| first.cost <= 2 * least)
    }

    /// Whether a fold after a barrier is needed.
    pub(crate) fn needs_finish(&self) -> bool {
        !self.folds.is_empty()
    }

    pub(super) fn items(&self) -> &[Item] {
        &self.items
    }

    pub(super) fn folds(&self) -> &[Fold] {
        &self.folds
    }

    fn add(&mut self, shape: &PlanShape, batch: &Batch<'_>, block: Block, capacity: usize) {
        let seen = union(shape.mask, batch, &block);
        let spans = seen.start / SPAN..seen.end.div_ceil(SPAN);
        let floats = partial_floats(block.virtual_rows(), shape.v_dim);
        if spans.len() < 2 || self.partial_floats + spans.len() * floats > capacity {
            let cost = seen.len().div_ceil(TILE) * block.virtual_rows();
            self.items.push(Item { block, spans, partial: None, cost });
            return;
        }
        let first = self.partial_floats;
        for span in spans.clone() {
            let positions = seen.end.min((span + 1) * SPAN) - seen.start.max(span * SPAN);
            let cost = positions.div_ceil(TILE) * block.virtual_rows();
            let partial = Some(self.partial_floats);
            self.items.push(Item { block: block.clone(), spans: span..span + 1, partial, cost });
            self.partial_floats += floats;
        }
        self.folds.push(Fold { block, spans, partial: first });
    }
}

impl Item {
    /// Positions that the item's queries see in its spans.
    pub(super) fn positions(&self, args: &AttentionArgs<'_>) -> Range<usize> {
        let seen = union(args.spec.mask, args.batch, &self.block);
        seen.start.max(self.spans.start * SPAN)..seen.end.min(self.spans.end * SPAN)
    }

    /// Large items first, so that the last ones to be claimed are small; among items of like size
    /// those of one KV head together, so that its rows stay in the cache.
    fn order(&self) -> impl Ord + use<> {
        let block = &self.block;
        let place =
            (block.sequence, block.heads.start, Reverse(self.cost), block.rows.start, self.spans.start);
        (Reverse(self.cost.max(1).ilog2()), place)
    }
}

/// Floats of the state of some virtual rows: maxima, sums, accumulators.
pub(super) fn partial_floats(virtual_rows: usize, v_dim: usize) -> usize {
    virtual_rows * (v_dim.next_multiple_of(LANES) + 2)
}

/// All positions that a query of the block sees.
fn union(mask: Mask, batch: &Batch<'_>, block: &Block) -> Range<usize> {
    let length = batch.sequences[block.sequence].length();
    let first = visible(mask, batch.positions[block.rows.start], length);
    let last = visible(mask, batch.positions[block.rows.end - 1], length);
    first.start..last.end
}

/// Query rows of a block: as many as share a tile well, fewer where that leaves too few items for
/// the workers.
fn rows_per_block(shape: &PlanShape, tokens: usize, workers: usize) -> usize {
    let group = shape.heads / shape.kv_heads;
    let most = (SHARED_ROWS / group).max(1);
    let fewest = (FEWEST_ROWS / group).clamp(1, most);
    (tokens * shape.kv_heads / (4 * workers)).clamp(fewest, most)
}
