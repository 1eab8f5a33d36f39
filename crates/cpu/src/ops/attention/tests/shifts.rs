//! Tables that removals have left behind, against an f64 reference on rows that were never rotated,
//! and against themselves.

use minfer_graph::{EVICTED, KvRun, RopePairs};

use super::*;
use crate::ops::rope::tests as rope;

/// One sequence that grows at its end and loses rows anywhere.
struct Shifting {
    case: Case,
    arena: CpuArena,
    free: Vec<u32>,
    runs: Vec<KvRun>,
    /// The row, by its number in `source`, at each position.
    rows: Vec<usize>,
    source: Sequence,
}

/// What happens to a sequence.
#[derive(Debug, Clone)]
enum Change {
    Append(usize),
    Remove(Range<usize>),
}

impl Shifting {
    fn new(case: &Case, source: &Sequence, changes: &[Change], seed: u64) -> Shifting {
        let blocks = source.length as u32 / case.block_tokens + changes.len() as u32 + 2;
        let spec = KvSpec { groups: vec![case.group()], max_blocks: vec![blocks] };
        let mut arena = CpuArena::new(&spec).unwrap();
        (0..blocks).for_each(|block| arena.commit(0, block).unwrap());
        let pairs = arena.cells(0).pairs;
        pairs.get_mut(0..pairs.len()).fill(u32::MAX);
        let mut world = Shifting {
            case: case.clone(),
            arena,
            free: Numbers(seed).order(blocks as usize),
            runs: Vec::new(),
            rows: Vec::new(),
            source: source.clone(),
        };
        let mut next = 0;
        for change in changes {
            match change {
                Change::Append(count) => (next..next + count).for_each(|row| world.append(row)),
                Change::Remove(range) => world.remove(range.clone()),
            }
            next += if let Change::Append(count) = change { *count } else { 0 };
        }
        world
    }

    fn append(&mut self, row: usize) {
        let position = self.rows.len() as u32;
        let block_tokens = self.case.block_tokens;
        let (block, offset) = match self.runs.last() {
            Some(last) if last.offset + last.rows < block_tokens => (last.block, last.offset + last.rows),
            _ => (self.free.pop().unwrap(), 0),
        };
        match self.runs.last_mut() {
            Some(last) if last.block == block && last.rope_offset == 0 => last.rows += 1,
            _ => self.runs.push(KvRun { start: position, rows: 1, block, offset, rope_offset: 0 }),
        }
        self.rows.push(row);
        let cell = (block, offset as usize);
        for head in 0..self.case.kv_heads as usize {
            let rotated = rope::truth(self.case.rope.as_ref().unwrap(), position, self.k(row, head));
            let rotated: Vec<f32> = rotated.into_iter().map(|x| x as f32).collect();
            write(self.arena.cells(0), &self.case, KvSide::K, cell, head, &rotated);
            write(self.arena.cells(0), &self.case, KvSide::V, cell, head, self.v(row, head));
        }
    }

    fn remove(&mut self, range: Range<usize>) {
        self.rows.drain(range.clone());
        let (from, to) = (range.start as u32, range.end as u32);
        let mut left = Vec::new();
        for run in std::mem::take(&mut self.runs) {
            if run.start < from {
                left.push(KvRun { rows: run.rows.min(from - run.start), ..run });
            }
            if run.end() > to {
                let cut = to.saturating_sub(run.start);
                left.push(KvRun {
                    start: run.start + cut - (to - from),
                    rows: run.rows - cut,
                    offset: run.offset + cut,
                    rope_offset: run.rope_offset + (to - from),
                    ..run
                });
            }
        }
        self.runs = left;
    }

    fn k(&self, row: usize, head: usize) -> &[f32] {
        let dim = self.case.k_dim as usize;
        &self.source.k[(row * self.case.kv_heads as usize + head) * dim..][..dim]
    }

    fn v(&self, row: usize, head: usize) -> &[f32] {
        let dim = self.case.v_dim as usize;
        &self.source.v[(row * self.case.kv_heads as usize + head) * dim..][..dim]
    }

    fn q(&self, position: usize, head: usize) -> &[f32] {
        let dim = self.case.k_dim as usize;
        &self.source.q[(position * self.case.heads as usize + head) * dim..][..dim]
    }

    /// Results of the queries at some positions, `chunk` of them at a time. Runs that no query of a
    /// chunk sees are evicted.
    fn attend(&self, way: Way, positions: Range<usize>, chunk: usize) -> Vec<f32> {
        let mut out = Vec::new();
        for start in positions.clone().step_by(chunk) {
            let end = positions.end.min(start + chunk);
            let rope = self.case.rope.as_ref().unwrap();
            let mut q: Vec<f32> = (start..end)
                .flat_map(|position| {
                    (0..self.case.heads as usize)
                        .flat_map(move |head| rope::truth(rope, position as u32, self.q(position, head)))
                })
                .map(|x| x as f32)
                .collect();
            let first_seen = visible(self.case.mask, start as u32, end as u32).start as u32;
            let mut runs = self.runs.clone();
            runs.iter_mut().filter(|run| run.end() <= first_seen).for_each(|run| run.block = EVICTED);
            let tables = [BlockTable::Shifted(&runs)];
            let zeros = vec![0; end - start];
            let batch_positions: Vec<u32> = (start as u32..end as u32).collect();
            let batch = Batch {
                token_ids: &zeros,
                positions: &batch_positions,
                sequences: &[SequenceView { rows: 0..(end - start) as u32, cached: start as u32 }],
                kv: &[KvGroupBatch { cells: &zeros, block_tables: &tables }],
                output_rows: &[],
            };
            out.extend(attend(&self.case, &self.arena, &[], way, &batch, &mut q));
        }
        out
    }

    /// Softmax attention in f64: rows rotated at the positions that they have now.
    fn truth(&self, positions: Range<usize>) -> Vec<f64> {
        let (case, rope) = (&self.case, self.case.rope.as_ref().unwrap());
        let group = (case.heads / case.kv_heads) as usize;
        let mut out = Vec::new();
        for (position, head) in positions.flat_map(|p| (0..case.heads as usize).map(move |head| (p, head))) {
            let q = rope::truth(rope, position as u32, self.q(position, head));
            let seen: Vec<usize> = visible(case.mask, position as u32, position as u32 + 1).collect();
            let score = |&other: &usize| -> f64 {
                let k = rope::truth(rope, other as u32, self.k(self.rows[other], head / group));
                q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>() / f64::from(case.k_dim).sqrt()
            };
            let scores: Vec<f64> = seen.iter().map(score).collect();
            let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for dim in 0..case.v_dim as usize {
                let value = |&other: &usize| f64::from(self.v(self.rows[other], head / group)[dim]);
                out.push(seen.iter().zip(&weights).map(|(o, w)| w * value(o)).sum::<f64>() / sum);
            }
        }
        out
    }
}

/// Twenty removals of some rows behind the first, as a chat does them, or of rows anywhere; new
/// rows after each.
fn changes(seed: u64, kept: Option<usize>) -> Vec<Change> {
    let mut numbers = Numbers(seed);
    let (mut changes, mut length) = (vec![Change::Append(420)], 420);
    for _ in 0..20 {
        let count = 1 + numbers.below(90);
        let start = kept.unwrap_or_else(|| numbers.below(length - count));
        changes.push(Change::Remove(start..start + count));
        let appended = numbers.below(2 * count);
        changes.push(Change::Append(appended));
        length = length - count + appended;
        assert!(length > 100, "{length} rows are left");
    }
    changes.push(Change::Append(30));
    changes
}

fn length(changes: &[Change]) -> (usize, usize) {
    let mut rows = (0, 0);
    for change in changes {
        match change {
            Change::Append(count) => rows = (rows.0 + count, rows.1 + count),
            Change::Remove(range) => rows.1 -= range.len(),
        }
    }
    rows
}

fn case(pairs: RopePairs, dim: u32, rotated: usize, format: KvFormat) -> Case {
    Case { rope: Some(rope::spec(pairs, rotated, 1.0)), ..Case::new(4, 2, dim, format) }
}

fn relative_error(got: &[f32], exact: &[f64]) -> f64 {
    assert_eq!(got.len(), exact.len());
    let scale = exact.iter().fold(0f64, |scale, x| scale.max(x.abs()));
    got.iter().zip(exact).map(|(&got, exact)| (f64::from(got) - exact).abs()).fold(0.0, f64::max) / scale
}

#[test]
fn after_twenty_removals_results_are_those_of_rows_that_were_never_rotated() {
    for (seed, pairs, dim, rotated, magnitude) in [
        (1, RopePairs::Halves, 64, 64, 1.0),
        (2, RopePairs::Adjacent, 64, 64, 1.0),
        (3, RopePairs::Halves, 80, 32, 1.19),
        (4, RopePairs::Adjacent, 24, 20, 1.0),
    ] {
        for (kept, mask) in [(Some(37), Mask::Causal), (None, Mask::Causal), (None, Mask::Window(75))] {
            let changes = changes(seed, kept);
            let (rows, left) = length(&changes);
            let rope = Some(rope::spec(pairs, rotated, magnitude));
            let case = Case { mask, rope, ..case(pairs, dim, rotated, KvFormat::F32) };
            let source = Sequence::random(&case, rows, seed);
            let world = Shifting::new(&case, &source, &changes, seed);
            assert!(world.runs.iter().any(|run| run.rope_offset > 100), "{:?}", world.runs);
            let positions = left - 20..left;
            let exact = world.truth(positions.clone());
            let error = relative_error(&world.attend(best(2), positions, 20), &exact);
            println!("{pairs:?} {dim} {rotated} {mask:?}: {error:.1e}");
            assert!(error < 1e-5, "{pairs:?} {dim} {rotated} {mask:?}: {error:e}");
        }
    }
}

/// Bits depend on rows, positions and rope offsets alone.
#[test]
fn moved_rows_give_the_same_bits_in_every_way() {
    let changes = changes(9, Some(5));
    let (rows, left) = length(&changes);
    let formats = KvFormat::ALL.into_iter();
    for (format, mask) in formats.flat_map(|format| [(format, Mask::Causal), (format, Mask::Window(60))]) {
        let mut case = Case { mask, ..case(RopePairs::Halves, 32, 32, format) };
        let source = Sequence::random(&case, rows, 7);
        let positions = left - 50..left;
        let plain = Shifting::new(&case, &source, &changes, 1);
        let expected = plain.attend(best(1), positions.clone(), 50);
        let limit = match format {
            KvFormat::F32 => 1e-5,
            KvFormat::F16 | KvFormat::BF16 | KvFormat::Q8_0 => 2e-2,
            KvFormat::Q4_0 => 0.3,
        };
        assert!(relative_error(&expected, &plain.truth(positions.clone())) < limit, "{format} {mask:?}");
        for layout in KvLayout::ALL {
            for (block_tokens, seed) in [(16, 2), (64, 3), (128, 4)] {
                case = Case { layout, block_tokens, ..case };
                let world = Shifting::new(&case, &source, &changes, seed);
                for (isa, chunk) in Isa::available().zip([50, 7, 1]) {
                    let way = Way { isa, ..best(3) };
                    let found = world.attend(way, positions.clone(), chunk);
                    assert!(bits(&found) == bits(&expected), "{case:?} {way:?} {chunk}");
                }
            }
        }
    }
}
