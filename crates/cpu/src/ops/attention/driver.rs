//! An item from queries to results: spans, tiles, and within a tile scores, softmax, values, fold.

use std::ops::Range;

use half::bf16;
use minfer_graph::KvFormat;

use super::cells::{HeadCells, Tile};
use super::plan::{Block, Fold, Item, partial_floats};
use super::products::{Matrix, accumulate, blocks, scores};
use super::scratch::AttentionScratch;
use super::softmax::{Scores, softmax_row};
use super::state::{StateMut, StateRef, fold, fold_sink};
use super::{AttentionArgs, SPAN, TILE, visible};
use crate::arch::{Kernel, LANES, Simd};

/// Computes one item.
pub(super) struct RunItem<'a, 'b> {
    pub(super) args: &'b AttentionArgs<'a>,
    pub(super) item: &'b Item,
    pub(super) scratch: &'b mut AttentionScratch,
}

/// Folds the partial states of one block.
pub(super) struct RunFold<'a, 'b> {
    pub(super) args: &'b AttentionArgs<'a>,
    pub(super) fold: &'b Fold,
    pub(super) scratch: &'b mut AttentionScratch,
}

/// A block's queries and what they see. Virtual row `r` is query row `r / heads` with head `r % heads`, so that what is seen
/// starts and ends no earlier from row to row.
#[derive(Clone, Copy)]
struct Queries<'a, 'b> {
    args: &'b AttentionArgs<'a>,
    block: &'b Block,
}

impl Queries<'_, '_> {
    fn count(&self) -> usize {
        self.block.virtual_rows()
    }

    /// Row of the batch and query head.
    fn place(&self, row: usize) -> (usize, usize) {
        let heads = self.block.heads.len();
        (self.block.rows.start + row / heads, self.block.heads.start + row % heads)
    }

    /// Positions that a virtual row sees.
    fn seen(&self, row: usize) -> Range<usize> {
        let batch = self.args.batch;
        let length = batch.sequences[self.block.sequence].length();
        visible(self.args.spec.mask, batch.positions[self.place(row).0], length)
    }

    /// Positions of a range that a virtual row sees, counted from the range's start.
    fn seen_in(&self, row: usize, range: &Range<usize>) -> Range<usize> {
        let seen = self.seen(row);
        let (start, end) = (seen.start.max(range.start), seen.end.min(range.end));
        start.max(range.start).min(range.end) - range.start..end.max(start).min(range.end) - range.start
    }

    /// The virtual rows that see something of a range: neighbours.
    fn active(&self, range: &Range<usize>) -> Range<usize> {
        let heads = self.block.heads.len();
        let sees = |query: usize| !self.seen_in(query * heads, range).is_empty();
        let queries = self.block.rows.len();
        let first = (0..queries).find(|&query| sees(query)).unwrap_or(queries);
        let end = (first..queries).find(|&query| !sees(query)).unwrap_or(queries);
        first * heads..end * heads
    }

    /// All positions of a range that some of the rows see, counted from the range's start.
    fn union(&self, rows: &Range<usize>, range: &Range<usize>) -> Range<usize> {
        self.seen_in(rows.start, range).start..self.seen_in(rows.end - 1, range).end
    }

    fn width(&self) -> usize {
        (self.args.spec.v_dim as usize).next_multiple_of(LANES)
    }
}

impl Kernel for RunItem<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let RunItem { args, item, scratch } = self;
        let queries = Queries { args, block: &item.block };
        let (rows, width) = (queries.count(), queries.width());
        load_queries(&queries, scratch);
        scratch.total.state_mut().clear(rows, width);
        for span in item.spans.clone() {
            let positions = span * SPAN..(span + 1) * SPAN;
            run_span(simd, &queries, positions.clone(), scratch);
            let AttentionScratch { span, total, factors, .. } = scratch;
            let [there, coming] = factors;
            let factors = [there.get_mut(), coming.get_mut()];
            match item.partial {
                None => {
                    let active = queries.active(&positions);
                    fold(simd, &mut total.state_mut(), span.state(), active, width, factors);
                }
                Some(partial) => save(span.state(), args, partial, rows, width),
            }
        }
        if item.partial.is_none() {
            write_results(simd, &queries, &mut scratch.total.state_mut());
        }
    }
}

impl Kernel for RunFold<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let RunFold { args, fold: parts, scratch } = self;
        let queries = Queries { args, block: &parts.block };
        let (rows, width) = (queries.count(), queries.width());
        let floats = partial_floats(rows, args.spec.v_dim as usize);
        scratch.total.state_mut().clear(rows, width);
        for (index, span) in parts.spans.clone().enumerate() {
            let start = parts.partial + index * floats;
            let memory = args.partials.get(start..start + floats);
            let (max, rest) = memory.split_at(rows);
            let (sum, acc) = rest.split_at(rows);
            let active = queries.active(&(span * SPAN..(span + 1) * SPAN));
            let AttentionScratch { total, factors: [there, coming], .. } = scratch;
            let factors = [there.get_mut(), coming.get_mut()];
            fold(simd, &mut total.state_mut(), StateRef { max, sum, acc }, active, width, factors);
        }
        write_results(simd, &queries, &mut scratch.total.state_mut());
    }
}

/// Copies the block's queries, rounded where K is bf16.
#[inline(always)]
fn load_queries(queries: &Queries<'_, '_>, scratch: &mut AttentionScratch) {
    let k_dim = queries.args.spec.k_dim as usize;
    for row in 0..queries.count() {
        let (batch_row, head) = queries.place(row);
        let from = &queries.args.q.row(batch_row)[head * k_dim..(head + 1) * k_dim];
        if queries.args.group.k_format == KvFormat::BF16 {
            let to = &mut scratch.q_pairs.get_mut()[row * k_dim / 2..(row + 1) * k_dim / 2];
            for (to, from) in to.iter_mut().zip(from.as_chunks::<2>().0) {
                let [low, high] = from.map(|value| u32::from(bf16::from_f32_const(value).to_bits()));
                *to = low | high << 16;
            }
        } else {
            scratch.q.get_mut()[row * k_dim..(row + 1) * k_dim].copy_from_slice(from);
        }
    }
}

/// The state of a span: its tiles folded in order.
#[inline(always)]
fn run_span<S: Simd>(simd: S, queries: &Queries<'_, '_>, span: Range<usize>, scratch: &mut AttentionScratch) {
    let width = queries.width();
    scratch.span.state_mut().clear(queries.count(), width);
    let active = queries.active(&span);
    if active.is_empty() {
        return;
    }
    let seen = queries.union(&active, &span);
    let (first, last) = (span.start + seen.start / TILE * TILE, span.start + seen.end);
    for start in (first..last).step_by(TILE) {
        let tile = start..start + TILE;
        let rows = queries.active(&tile);
        if rows.is_empty() {
            continue;
        }
        run_tile(simd, queries, &tile, rows.clone(), scratch);
        let AttentionScratch { tile, span, factors: [there, coming], .. } = scratch;
        let factors = [there.get_mut(), coming.get_mut()];
        fold(simd, &mut span.state_mut(), tile.state(), rows, width, factors);
    }
}

/// The state of a tile for the rows that see something of it.
#[inline(always)]
fn run_tile<S: Simd>(
    simd: S,
    queries: &Queries<'_, '_>,
    tile: &Range<usize>,
    rows: Range<usize>,
    scratch: &mut AttentionScratch,
) {
    let args = queries.args;
    let cells = HeadCells {
        group: args.group,
        cells: args.cells,
        blocks: args.batch.kv[args.group_index].block_tables[queries.block.sequence],
        layer_index: args.layer_index,
        kv_head: queries.block.kv_head,
    };
    let seen = queries.union(&rows, tile);
    let AttentionScratch { q, q_pairs, scores, pairs, k, k_pairs, v, v_pairs, edge, tile: state, .. } =
        scratch;
    let scores = scores.get_mut().as_chunks_mut::<TILE>().0;
    let pairs = pairs.get_mut().as_chunks_mut::<{ TILE / 2 }>().0;

    let end = tile.start + seen.end;
    let k = cells.k_tile(simd, tile.start, end, rows.len(), k.get_mut(), k_pairs.get_mut());
    score_rows(simd, queries, rows.clone(), q.get(), q_pairs.get(), k, scores);
    let mut state = state.state_mut();
    softmax_rows(simd, queries, tile, rows.clone(), scores, pairs, &mut state);
    let v = cells.v_tile(simd, tile.start, seen, rows.len(), v.get_mut(), v_pairs.get_mut());
    let probabilities = Probabilities { scores, pairs };
    add_values(simd, queries, tile, rows, probabilities, v, edge.get_mut(), state.acc);
}

#[inline(always)]
fn score_rows<S: Simd>(
    simd: S,
    queries: &Queries<'_, '_>,
    rows: Range<usize>,
    q: &[f32],
    q_pairs: &[u32],
    k: Tile<'_>,
    out: &mut [[f32; TILE]],
) {
    let dim = queries.args.spec.k_dim as usize;
    let out = &mut out[rows.clone()];
    match k {
        Tile::F32(k) => scores(simd, &q[rows.start * dim..rows.end * dim], dim, k, out),
        Tile::F16(k) => scores(simd, &q[rows.start * dim..rows.end * dim], dim, k, out),
        Tile::BF16(k) => {
            let steps = dim / 2;
            scores(simd, &q_pairs[rows.start * steps..rows.end * steps], steps, k, out);
        }
    }
}

#[inline(always)]
fn softmax_rows<S: Simd>(
    simd: S,
    queries: &Queries<'_, '_>,
    tile: &Range<usize>,
    rows: Range<usize>,
    scores: &mut [[f32; TILE]],
    pairs: &mut [[u32; TILE / 2]],
    state: &mut StateMut<'_>,
) {
    let spec = queries.args.spec;
    let how = Scores { scale: spec.scale.get(), cap: spec.softcap.map(|cap| cap.get()) };
    let rounded = queries.args.group.v_format == KvFormat::BF16;
    for row in rows {
        let seen = queries.seen_in(row, tile);
        let pairs = if rounded { Some(&mut pairs[row]) } else { None };
        (state.max[row], state.sum[row]) = softmax_row(simd, how, &mut scores[row], seen, pairs);
    }
}

/// The probabilities of a tile's rows in both forms.
#[derive(Clone, Copy)]
struct Probabilities<'a> {
    scores: &'a [[f32; TILE]],
    pairs: &'a [[u32; TILE / 2]],
}

/// The accumulators of a tile: probabilities times values over what each row sees.
#[inline(always)]
fn add_values<S: Simd>(
    simd: S,
    queries: &Queries<'_, '_>,
    tile: &Range<usize>,
    rows: Range<usize>,
    probabilities: Probabilities<'_>,
    v: Tile<'_>,
    edge: &mut [u32],
    acc: &mut [f32],
) {
    let width = queries.width();
    let mut first = rows.start;
    for count in blocks(rows.len()) {
        let rows = first..first + count;
        first += count;
        acc[rows.start * width..rows.end * width].fill(0.0);
        let runs = Runs::new(queries, tile, rows);
        for (rows, positions) in runs {
            let acc = &mut acc[rows.start * width..rows.end * width];
            match v {
                Tile::F32(v) => {
                    accumulate(
                        simd,
                        probabilities.scores[rows].as_flattened(),
                        TILE,
                        v,
                        positions,
                        acc,
                        width,
                    );
                }
                Tile::F16(v) => {
                    accumulate(
                        simd,
                        probabilities.scores[rows].as_flattened(),
                        TILE,
                        v,
                        positions,
                        acc,
                        width,
                    );
                }
                Tile::BF16(v) => {
                    let factors = probabilities.pairs[rows].as_flattened();
                    accumulate_pairs(simd, factors, v, positions, edge, acc, width);
                }
            }
        }
    }
}

/// Runs of positions for some rows of a register tile, in an order that takes each row through its positions in order: what a
/// row sees before the common part, the common part for all rows at once, what a row sees after it.
struct Runs<'a, 'b> {
    queries: &'b Queries<'a, 'b>,
    tile: &'b Range<usize>,
    rows: Range<usize>,
    common: Range<usize>,
    next: usize,
}

impl<'a, 'b> Runs<'a, 'b> {
    fn new(queries: &'b Queries<'a, 'b>, tile: &'b Range<usize>, rows: Range<usize>) -> Runs<'a, 'b> {
        // Bounds grow from row to row.
        let start = queries.seen_in(rows.end - 1, tile).start.next_multiple_of(2);
        let end = queries.seen_in(rows.start, tile).end;
        // A common end inside of a pair is moved down unless all rows end there.
        let same = queries.seen_in(rows.end - 1, tile).end == end;
        let end = if same { end } else { end / 2 * 2 };
        let same = queries.seen_in(rows.start, tile).start == queries.seen_in(rows.end - 1, tile).start;
        let start = if same { queries.seen_in(rows.start, tile).start } else { start };
        Runs { queries, tile, rows, common: start..end.max(start), next: 0 }
    }

    /// Part `index`: (rows, positions), perhaps without positions.
    fn part(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let count = self.rows.len();
        if index == count {
            return (self.rows.clone(), self.common.clone());
        }
        let row = self.rows.start + if index < count { index } else { index - count - 1 };
        let seen = self.queries.seen_in(row, self.tile);
        let positions = if index < count {
            seen.start..seen.end.min(self.common.start)
        } else {
            seen.start.max(self.common.end)..seen.end
        };
        (row..row + 1, positions)
    }
}

impl Iterator for Runs<'_, '_> {
    type Item = (Range<usize>, Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        while self.next <= 2 * self.rows.len() {
            let (rows, positions) = self.part(self.next);
            self.next += 1;
            if !positions.is_empty() {
                return Some((rows, positions));
            }
        }
        None
    }
}

/// Pair dots over a run of positions. A pair of which the run has one half only counts the other half as zero, in V too: its
/// cell may hold anything.
#[inline(always)]
fn accumulate_pairs<S: Simd>(
    simd: S,
    factors: &[u32],
    v: Matrix<'_, u32>,
    positions: Range<usize>,
    edge: &mut [u32],
    acc: &mut [f32],
    width: usize,
) {
    let last = positions.end.div_ceil(2);
    let mut pair = positions.start / 2;
    while pair < last {
        let mask = half_mask(pair, &positions);
        let (matrix, end) = if mask == u32::MAX {
            (v, positions.end / 2)
        } else {
            for (edge, word) in edge[..width].iter_mut().zip(&v.values[pair * v.stride..][..width]) {
                *edge = word & mask;
            }
            (Matrix { values: &edge[..width], stride: 0 }, pair + 1)
        };
        accumulate(simd, factors, TILE / 2, matrix, pair..end, acc, width);
        pair = end;
    }
}

/// Which halves of a pair lie in a run of positions.
fn half_mask(pair: usize, positions: &Range<usize>) -> u32 {
    let low = if positions.contains(&(2 * pair)) { 0x0000_ffff } else { 0 };
    let high = if positions.contains(&(2 * pair + 1)) { 0xffff_0000 } else { 0 };
    low | high
}

/// Keeps a span's state for the fold after the barrier.
#[inline(always)]
fn save(state: StateRef<'_>, args: &AttentionArgs<'_>, start: usize, rows: usize, width: usize) {
    let memory = args.partials.get_mut(start..start + rows * (width + 2));
    let (max, rest) = memory.split_at_mut(rows);
    let (sum, acc) = rest.split_at_mut(rows);
    max.copy_from_slice(&state.max[..rows]);
    sum.copy_from_slice(&state.sum[..rows]);
    acc.copy_from_slice(&state.acc[..rows * width]);
}

/// Folds the sinks, divides and writes.
#[inline(always)]
fn write_results<S: Simd>(simd: S, queries: &Queries<'_, '_>, state: &mut StateMut<'_>) {
    let (width, v_dim) = (queries.width(), queries.args.spec.v_dim as usize);
    for row in 0..queries.count() {
        let (batch_row, head) = queries.place(row);
        if let Some(sinks) = queries.args.sinks {
            fold_sink(simd, state, row, width, sinks[head]);
        }
        let sum = simd.splat(state.sum[row]);
        let acc = &state.acc[row * width..(row + 1) * width];
        let out = queries.args.out.row_mut(batch_row, head * v_dim..(head + 1) * v_dim);
        for (acc, out) in acc.as_chunks::<LANES>().0.iter().zip(out.chunks_mut(LANES)) {
            crate::math::store_part(simd, simd.div(simd.load(acc), sum), out);
        }
    }
}
