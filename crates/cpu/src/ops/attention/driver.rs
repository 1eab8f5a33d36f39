//! Computes one item of attention: for each span and tile the scores, softmax, values and fold.

use std::ops::Range;

use minfer_graph::KvFormat;

use super::cells::HeadCells;
use super::plan::{Block, Fold, Item, partial_floats};
use super::products::{Ahead, Matrix, Values, blocks, scores};
use super::quantised::Quants;
use super::scratch::{AttentionScratch, QUERY, QueryRows, Seen};
use super::softmax::{Scores, Softmax};
use super::state::{StateMut, StateRef, fold, fold_sink};
use super::tiles::{Keys, Tile};
use super::{AttentionArgs, SPAN, TILE, visible};
use crate::arch::{Kernel, LANES, Simd};

/// Computes one item.
pub(super) struct RunItem<'a, 'b> {
    pub(super) args: &'b AttentionArgs<'a>,
    pub(super) item: &'b Item,
    /// What this worker probably computes after it.
    pub(super) next: Option<&'b Item>,
    pub(super) scratch: &'b mut AttentionScratch,
}

/// Folds the partial states of one block.
pub(super) struct RunFold<'a, 'b> {
    pub(super) args: &'b AttentionArgs<'a>,
    pub(super) fold: &'b Fold,
    pub(super) scratch: &'b mut AttentionScratch,
}

/// A block's queries and what they see. Virtual row `r` is query row `r / heads` with head `r %
/// heads`, so that what is seen starts and ends no earlier from row to row.
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

    /// Positions that a query row of the block sees.
    fn seen(&self, query: usize) -> Range<usize> {
        let batch = self.args.batch;
        let length = batch.sequences[self.block.sequence].length();
        visible(self.args.spec.mask, batch.positions[self.block.rows.start + query], length)
    }

    /// The virtual rows that see something of a range: neighbours.
    fn active(&self, range: &Range<usize>) -> Range<usize> {
        let (heads, queries) = (self.block.heads.len(), self.block.rows.len());
        let first = (0..queries).find(|&query| self.seen(query).end > range.start).unwrap_or(queries);
        let end = (first..queries).find(|&query| self.seen(query).start >= range.end).unwrap_or(queries);
        first * heads..end * heads
    }

    /// All positions that some of the rows see.
    fn union(&self, rows: &Range<usize>) -> Range<usize> {
        let heads = self.block.heads.len();
        self.seen(rows.start / heads).start..self.seen((rows.end - 1) / heads).end
    }

    /// What some rows see of a tile.
    fn fill_seen(&self, rows: &Range<usize>, tile: &Range<usize>, seen: &mut [Seen]) {
        let heads = self.block.heads.len();
        for query in rows.start / heads..rows.end / heads {
            let all = self.seen(query);
            let (start, end) = (all.start.max(tile.start), all.end.min(tile.end));
            seen[query * heads..(query + 1) * heads]
                .fill(Seen { start: start - tile.start, end: end - tile.start });
        }
    }

    fn v_dims(&self) -> usize {
        (self.args.spec.v_dim as usize).next_multiple_of(LANES)
    }
}

impl Kernel for RunItem<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let RunItem { args, item, next, scratch } = self;
        let cells = HeadCells::new(args, item, next);
        let queries = Queries { args, block: &item.block };
        let (rows, v_dims) = (queries.count(), queries.v_dims());
        load_queries(simd, &queries, 0, &mut scratch.q);
        scratch.total.state_mut().clear(rows, v_dims);
        for span in item.spans.clone() {
            let positions = span * SPAN..(span + 1) * SPAN;
            run_span(simd, &queries, &cells, positions.clone(), scratch);
            let AttentionScratch { span, total, factors, .. } = scratch;
            let [there, coming] = factors;
            let factors = [there.get_mut(), coming.get_mut()];
            match item.partial {
                None => {
                    let active = queries.active(&positions);
                    fold(simd, &mut total.state_mut(), span.state(), active, v_dims, factors);
                }
                Some(partial) => save(span.state(), args, partial, rows, v_dims),
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
        let (rows, v_dims) = (queries.count(), queries.v_dims());
        let floats = partial_floats(rows, args.spec.v_dim as usize);
        scratch.total.state_mut().clear(rows, v_dims);
        for (index, span) in parts.spans.clone().enumerate() {
            let start = parts.partial + index * floats;
            let memory = args.partials.get(start..start + floats);
            let (max, rest) = memory.split_at(rows);
            let (sum, acc) = rest.split_at(rows);
            let active = queries.active(&(span * SPAN..(span + 1) * SPAN));
            let AttentionScratch { total, factors: [there, coming], .. } = scratch;
            let factors = [there.get_mut(), coming.get_mut()];
            fold(simd, &mut total.state_mut(), StateRef { max, sum, acc }, active, v_dims, factors);
        }
        write_results(simd, &queries, &mut scratch.total.state_mut());
    }
}

/// Copies the block's queries, rotated by a rope offset where K is rotated, rounded where K is
/// bf16.
#[inline(always)]
fn load_queries<S: Simd>(simd: S, queries: &Queries<'_, '_>, rope_offset: u32, to: &mut QueryRows) {
    let k_dim = queries.args.spec.k_dim as usize;
    to.rope_offset = rope_offset;
    let k_shift =
        queries.args.k_shift.filter(|_| rope_offset > 0).map(|k_shift| (k_shift, k_shift.row(rope_offset)));
    let rows = to.floats.get_mut().as_chunks_mut::<QUERY>().0;
    for (row, to) in rows[..queries.count()].iter_mut().enumerate() {
        let (batch_row, head) = queries.place(row);
        to[..k_dim].copy_from_slice(&queries.args.q.row(batch_row)[head * k_dim..(head + 1) * k_dim]);
        if let Some((k_shift, angles)) = k_shift {
            k_shift.rotation.rotate(simd, angles, &mut to[..k_dim]);
        }
    }
    if let Some(quants) = Quants::of(queries.args.group.k_format) {
        for (from, to) in rows[..queries.count()].iter().zip(&mut to.quantised) {
            to.fill(simd, &from[..k_dim], quants);
        }
    }
    if queries.args.group.k_format == KvFormat::BF16 {
        let pairs = to.pairs.get_mut().as_chunks_mut::<{ QUERY / 2 }>().0;
        for (from, to) in rows[..queries.count()].iter().zip(pairs) {
            let words = to.as_chunks_mut::<{ LANES / 2 }>().0;
            for (lanes, words) in from.as_chunks::<LANES>().0.iter().zip(words).take(k_dim.div_ceil(LANES)) {
                simd.store_bf16(simd.load(lanes), words);
            }
        }
    }
}

/// The state of a span: its tiles folded in order.
#[inline(always)]
fn run_span<S: Simd>(
    simd: S,
    queries: &Queries<'_, '_>,
    cells: &HeadCells<'_>,
    span: Range<usize>,
    scratch: &mut AttentionScratch,
) {
    let v_dims = queries.v_dims();
    scratch.span.state_mut().clear(queries.count(), v_dims);
    let active = queries.active(&span);
    if active.is_empty() {
        return;
    }
    let seen = queries.union(&active);
    let (first, last) = (seen.start.max(span.start) / TILE * TILE, seen.end.min(span.end));
    for start in (first..last).step_by(TILE) {
        let tile = start..start + TILE;
        let rows = queries.active(&tile);
        if rows.is_empty() {
            continue;
        }
        run_tile(simd, queries, cells, &tile, rows.clone(), scratch);
        let AttentionScratch { tile, span, factors: [there, coming], .. } = scratch;
        let factors = [there.get_mut(), coming.get_mut()];
        fold(simd, &mut span.state_mut(), tile.state(), rows, v_dims, factors);
    }
}

/// The state of a tile for the rows that see something of it.
#[inline(always)]
fn run_tile<S: Simd>(
    simd: S,
    queries: &Queries<'_, '_>,
    cells: &HeadCells<'_>,
    tile: &Range<usize>,
    rows: Range<usize>,
    scratch: &mut AttentionScratch,
) {
    let args = queries.args;
    let AttentionScratch { q, seen, scores, part, pairs, k, v, v_pairs, edge, tile: state, .. } = scratch;
    queries.fill_seen(&rows, tile, seen);
    let all = seen[rows.start].start..seen[rows.end - 1].end;
    let scores = scores.get_mut().as_chunks_mut::<TILE>().0;
    let pairs = pairs.get_mut().as_chunks_mut::<{ TILE / 2 }>().0;

    let k = cells.k_tile(simd, tile.start, all.clone(), rows.len(), k);
    let part = part.get_mut().as_chunks_mut::<TILE>().0;
    for (columns, rope_offset) in cells.rope_offsets(tile.start, all.clone()) {
        if rope_offset != q.rope_offset {
            load_queries(simd, queries, rope_offset, q);
        }
        if columns.start == all.start {
            score_rows(simd, queries, &rows, q, k, all.end, scores);
            continue;
        }
        score_rows(simd, queries, &rows, q, k.without_ahead(), all.end, part);
        for (to, from) in scores[rows.clone()].iter_mut().zip(&part[rows.clone()]) {
            to[columns.clone()].copy_from_slice(&from[columns.clone()]);
        }
    }
    let state = state.state_mut();
    let rounded = args.group.v_format == KvFormat::BF16;
    simd.outlined(Softmax {
        how: Scores { scale: args.spec.scale.get(), cap: args.spec.softcap.map(|cap| cap.get()) },
        seen: &seen[rows.clone()],
        scores: &mut scores[rows.clone()],
        pairs: if rounded { Some(&mut pairs[rows.clone()]) } else { None },
        max: &mut state.max[rows.clone()],
        sum: &mut state.sum[rows.clone()],
    });
    let v = cells.v_tile(simd, tile.start, all, rows.len(), v.get_mut(), v_pairs.get_mut());
    let probabilities = Probabilities { scores, pairs };
    add_values(simd, queries, seen, &rows, probabilities, v, edge.get_mut(), state.acc);
}

/// Raw scores of some rows, for the first `columns` positions at least.
#[inline(always)]
fn score_rows<S: Simd>(
    simd: S,
    queries: &Queries<'_, '_>,
    rows: &Range<usize>,
    q: &QueryRows,
    k: Keys<'_>,
    columns: usize,
    out: &mut [[f32; TILE]],
) {
    let dim = queries.args.spec.k_dim as usize;
    let q_pairs = q.pairs.get().as_chunks::<{ QUERY / 2 }>().0;
    let quantised = &q.quantised;
    let q = q.floats.get().as_chunks::<QUERY>().0;
    for block in blocks(rows.len()) {
        let block = rows.start + block.start..rows.start + block.end;
        // The first block of rows asks for the next tile; the others would ask again.
        let k = if block.start == rows.start { k } else { k.without_ahead() };
        let out = &mut out[block.clone()];
        match k {
            Keys::Plain(Tile::F32(k)) => scores(simd, &q[block], k, dim, columns, out),
            Keys::Plain(Tile::F16(k)) => scores(simd, &q[block], k, dim, columns, out),
            Keys::Plain(Tile::BF16(k)) => scores(simd, &q_pairs[block], k, dim / 2, columns, out),
            Keys::Quantised(k) => k.scores(simd, &quantised[block], columns, out),
        }
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
    seen: &[Seen],
    rows: &Range<usize>,
    probabilities: Probabilities<'_>,
    v: Tile<'_>,
    edge: &mut [u32],
    acc: &mut [f32],
) {
    let v_dims = queries.v_dims();
    for block in blocks(rows.len()) {
        let block = rows.start + block.start..rows.start + block.end;
        let v = if block.start == rows.start { v } else { v.without_ahead() };
        let runs = Runs::new(&seen[block.clone()]);
        let mut fresh = runs.start_together();
        if !fresh {
            acc[block.start * v_dims..block.end * v_dims].fill(0.0);
        }
        for (rows, positions) in runs {
            let rows = block.start + rows.start..block.start + rows.end;
            let out = &mut acc[rows.start * v_dims..rows.end * v_dims];
            match v {
                Tile::F32(v) => {
                    let factors = &probabilities.scores[rows];
                    Values { factors, v, steps: positions, fresh, out, v_dims }.add(simd);
                }
                Tile::F16(v) => {
                    let factors = &probabilities.scores[rows];
                    Values { factors, v, steps: positions, fresh, out, v_dims }.add(simd);
                }
                Tile::BF16(v) => {
                    let factors = &probabilities.pairs[rows];
                    add_pairs(simd, Values { factors, v, steps: 0..0, fresh, out, v_dims }, positions, edge);
                }
            }
            fresh = false;
        }
    }
}

/// Runs of positions for some rows of a register tile, in an order that takes each row through its
/// positions in order: what a row sees before the common part, the common part for all rows at
/// once, what a row sees after it.
struct Runs<'a> {
    seen: &'a [Seen],
    common: Range<usize>,
    next: usize,
}

impl<'a> Runs<'a> {
    fn new(seen: &'a [Seen]) -> Runs<'a> {
        // Bounds grow from row to row. A common bound inside of a pair is one of all rows.
        let (first, last) = (seen[0], seen[seen.len() - 1]);
        let start = if first.start == last.start { last.start } else { last.start.next_multiple_of(2) };
        let end = if first.end == last.end { first.end } else { first.end / 2 * 2 };
        Runs { seen, common: start..end.max(start), next: 0 }
    }

    /// Whether the first run is that of all rows.
    fn start_together(&self) -> bool {
        self.seen[0].start == self.common.start && !self.common.is_empty()
    }

    /// Part `index`: (rows, positions), perhaps without positions.
    fn part(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let count = self.seen.len();
        if index == count {
            return (0..count, self.common.clone());
        }
        let row = if index < count { index } else { index - count - 1 };
        let seen = self.seen[row];
        let positions = if index < count {
            seen.start..seen.end.min(self.common.start)
        } else {
            seen.start.max(self.common.end)..seen.end
        };
        (row..row + 1, positions)
    }
}

impl Iterator for Runs<'_> {
    type Item = (Range<usize>, Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        while self.next <= 2 * self.seen.len() {
            let (rows, positions) = self.part(self.next);
            self.next += 1;
            if !positions.is_empty() {
                return Some((rows, positions));
            }
        }
        None
    }
}

/// Pair dots over a run of positions. A pair of which the run has one half only counts the other
/// half as zero, in V too: its cell may hold anything.
#[inline(always)]
fn add_pairs<S: Simd>(
    simd: S,
    values: Values<'_, u32, { TILE / 2 }>,
    positions: Range<usize>,
    edge: &mut [u32],
) {
    let Values { factors, v, mut fresh, out, v_dims, .. } = values;
    let last = positions.end.div_ceil(2);
    let mut pair = positions.start / 2;
    while pair < last {
        let mask = half_mask(pair, &positions);
        let (v, end) = if mask == u32::MAX {
            (v, positions.end / 2)
        } else {
            for (edge, word) in edge[..v_dims].iter_mut().zip(&v.values[pair * v.stride..][..v_dims]) {
                *edge = word & mask;
            }
            (
                Matrix {
                    values: &edge[..v_dims],
                    stride: v_dims,
                    column: 0,
                    first: pair,
                    ahead: Ahead::NONE,
                },
                pair + 1,
            )
        };
        Values { factors, v, steps: pair..end, fresh, out, v_dims }.add(simd);
        fresh = false;
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
fn save(state: StateRef<'_>, args: &AttentionArgs<'_>, start: usize, rows: usize, v_dims: usize) {
    let memory = args.partials.get_mut(start..start + rows * (v_dims + 2));
    let (max, rest) = memory.split_at_mut(rows);
    let (sum, acc) = rest.split_at_mut(rows);
    max.copy_from_slice(&state.max[..rows]);
    sum.copy_from_slice(&state.sum[..rows]);
    acc.copy_from_slice(&state.acc[..rows * v_dims]);
}

/// Folds the sinks, divides and writes.
#[inline(always)]
fn write_results<S: Simd>(simd: S, queries: &Queries<'_, '_>, state: &mut StateMut<'_>) {
    let (v_dims, v_dim) = (queries.v_dims(), queries.args.spec.v_dim as usize);
    for row in 0..queries.count() {
        let (batch_row, head) = queries.place(row);
        if let Some(sinks) = queries.args.sinks {
            fold_sink(simd, state, row, v_dims, sinks[head]);
        }
        let sum = simd.splat(state.sum[row]);
        let acc = &state.acc[row * v_dims..(row + 1) * v_dims];
        let out = queries.args.out.row_mut(batch_row, head * v_dim..(head + 1) * v_dim);
        for (acc, out) in acc.as_chunks::<LANES>().0.iter().zip(out.chunks_mut(LANES)) {
            crate::math::store_part(simd, simd.div(simd.load(acc), sum), out);
        }
    }
}
