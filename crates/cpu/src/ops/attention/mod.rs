//! Scaled dot-product attention over the paged KV cache.
//!
//! The arithmetic of one query head, the same whatever else is computed beside it:
//!
//! - Positions are taken in tiles of [`TILE`] and spans of [`SPAN`], both aligned to the position
//!   in the sequence.
//! - A score is a sum over dims in order, one lane per position, fused, from +0; times `scale`;
//!   then `cap * tanh(score / cap)` where there is a cap.
//! - A tile yields `m = max`, `p = exp(score - m)`, `l = sum p` and `acc`. For the sum, position
//!   `i` is in lane `i % 16`; a lane is `(p0 + p1) + (p2 + p3)`, and the lanes are joined by the
//!   fixed tree. `acc` is a sum over the visible positions in order, one lane per dim, fused, from
//!   +0. Hidden positions have no part in it: what lies in their cells is never multiplied.
//! - Tiles are folded in order into their span, and spans in order into the result, by one function
//!   ([`state`]) that starts from the empty state. A tile or span without a visible position is
//!   skipped. A sink is folded last. The result is `acc / l`.
//! - K rows that a removal has moved were rotated at their position plus a rope offset. For them
//!   the query is rotated by that offset too, in f32 as rotation does it, from the query that came.
//! - bf16 rows: queries and `p` are rounded to bf16 and both products are pair dots. `l` sums the
//!   rounded `p`. The hidden half of a pair counts as two zeros.
//! - Quantised K: queries are quantised too, a score is a sum over blocks of 32 dims
//!   ([`quantised`]). Quantised V: a value is `scale * quant`, exact in f32, and taken as one.
//!
//! Work is claimed in items of an [`AttentionPlan`]. [`run`] computes items; where the plan splits
//! a sequence by span, [`finish`] folds the parts after a barrier.

mod cells;
mod driver;
mod k_shift;
mod plan;
mod products;
mod quantised;
mod scratch;
mod softmax;
mod state;
#[cfg(test)]
pub(super) mod tests;
mod tiles;

use std::ops::Range;

use minfer_graph::{AttentionSpec, Batch, KvGroupSpec, Mask};

use crate::arch::Isa;
use crate::arena::KvCells;
use crate::threads::{ChunkCounter, Rows, SharedSlice, Worker};

pub(crate) use k_shift::{KShift, KShiftAngles};
pub(crate) use plan::{AttentionPlan, PlanShape};
pub(crate) use scratch::AttentionScratch;

/// Positions of a tile.
pub(crate) const TILE: usize = 64;
/// Positions of a span: how a long sequence is split between workers.
pub(crate) const SPAN: usize = 1024;

/// One call of attention.
#[derive(Clone, Copy)]
pub(crate) struct AttentionArgs<'a> {
    /// The operation.
    pub(crate) spec: &'a AttentionSpec,
    /// The geometry of the layer's KV group.
    pub(crate) group: &'a KvGroupSpec,
    /// The group's index among the batch's.
    pub(crate) group_index: usize,
    /// The layer's index inside its group.
    pub(crate) layer_index: usize,
    /// The group's memory.
    pub(crate) cells: KvCells<'a>,
    /// The step.
    pub(crate) batch: &'a Batch<'a>,
    /// [tokens, heads * k_dim].
    pub(crate) q: Rows<'a>,
    /// [tokens, heads * v_dim].
    pub(crate) out: Rows<'a>,
    /// The context shift, where K is rotated.
    pub(crate) k_shift: Option<KShift<'a>>,
    /// [heads], where the operation has sinks.
    pub(crate) sinks: Option<&'a [f32]>,
    /// Made for this batch and shape.
    pub(crate) plan: &'a AttentionPlan,
    /// At least [`AttentionPlan::partial_floats`] values, kept from [`run`] to [`finish`].
    pub(crate) partials: SharedSlice<'a, f32>,
}

/// Computes items until all are claimed. `counter` starts at zero and is shared by the workers of
/// this call.
pub(crate) fn run(
    isa: Isa,
    worker: Worker,
    counter: &ChunkCounter,
    scratch: &mut AttentionScratch,
    args: &AttentionArgs<'_>,
) {
    let (items, is_even) = (args.plan.items(), args.plan.is_even());
    // Where one worker takes neighbours, it knows which cells it wants next.
    let claim = || match is_even {
        true => counter.claim_near(worker, items.len()),
        false => counter.claim(items.len(), 1),
    };
    while let Some(claimed) = claim() {
        for index in claimed {
            let next = items.get(index + 1).filter(|_| is_even);
            isa.run_pairs(driver::RunItem { args, item: &items[index], next, scratch });
        }
    }
}

/// Folds what [`run`] left in `partials`; nothing to do where the plan has no folds. A barrier lies
/// between the two, and `counter` is another one at zero.
pub(crate) fn finish(
    isa: Isa,
    counter: &ChunkCounter,
    scratch: &mut AttentionScratch,
    args: &AttentionArgs<'_>,
) {
    while let Some(folds) = counter.claim(args.plan.folds().len(), 1) {
        for fold in folds {
            isa.run(driver::RunFold { args, fold: &args.plan.folds()[fold], scratch });
        }
    }
}

/// The positions that a query sees.
pub(crate) fn visible(mask: Mask, position: u32, length: u32) -> Range<usize> {
    let end = position as usize + 1;
    match mask {
        Mask::Causal => 0..end,
        Mask::Window(n) => end.saturating_sub(n as usize)..end,
        Mask::Bidirectional => 0..length as usize,
    }
}
